"use strict";
// Draws the charts of a report. Each entry of the page's data names one of the functions in `draw`.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const own = document.currentScript;
  const config = {
    displaylogo: false, responsive: true,
    showSendToCloud: false,  // a button that uploads the chart
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toggleSpikelines"],
  };
  const NARROW = 560;  // pixels of a chart that has no room for names beside its lines
  const chosen = {};  // which button of a chart is pressed

  // Colours of charts are those of the light page; the style sheet says what each is on this one.
  const style = () => getComputedStyle(document.documentElement);
  const colour = (name) => style().getPropertyValue("--" + name).trim();
  function painted(value) {
    if (typeof value === "string") return /^#[0-9a-f]{6}$/.test(value) ? colour("c-" + value.slice(1)) || value : value;
    if (Array.isArray(value)) {
      return typeof value[0] === "number" && typeof value[value.length - 1] === "number" ? value : value.map(painted);
    }
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, painted(each)]));
  }

  const axis = (given) => ({
    gridcolor: colour("line"), zerolinecolor: colour("edge"), linecolor: colour("edge"), automargin: true, ...given,
    title: { standoff: 10, font: { size: 13 }, ...(given || {}).title },
  });
  const layout = (given) => ({
    font: {
      family: 'system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif', size: 12.5, color: colour("ink"),
    },
    paper_bgcolor: colour("paper"), plot_bgcolor: colour("paper"), margin: { l: 56, r: 16, t: 30, b: 46 },
    hoverlabel: { font: { size: 12.5 } }, ...given, xaxis: axis(given.xaxis), yaxis: axis(given.yaxis),
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("accent") },
  });

  const types = { u1: Uint8Array, u4: Uint32Array, f8: Float64Array };
  function unpack(text, type) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new types[type](bytes.buffer);
  }

  function choose(id, labels, apply) {
    const holder = document.getElementById(id + "-controls");
    holder.replaceChildren(...labels.map((label, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.setAttribute("aria-pressed", String(index === (chosen[id] || 0)));
      button.addEventListener("click", () => {
        for (const other of holder.children) other.setAttribute("aria-pressed", String(other === button));
        chosen[id] = index;
        apply(index);
      });
      return button;
    }));
    if (chosen[id]) apply(chosen[id]);
  }

  const si = (value, unit) => {
    const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
    const [factor, prefix] = steps.find(([least]) => value >= least) || [1, ""];
    return Number((value / factor).toPrecision(4)) + " " + prefix + unit;
  };

  // Names beside the ends of lines need room; where there is none, a legend says them.
  function fitted(id, given) {
    if (!(given.annotations || []).some((each) => each.name === "line")) return given;
    if (document.getElementById(id).clientWidth >= NARROW) return given;
    return {
      ...given, annotations: given.annotations.filter((each) => each.name !== "line"), showlegend: true,
      legend: { orientation: "h", x: 0, y: -0.25, yanchor: "top" }, margin: { l: 48, r: 8, t: 30, b: 46 },
    };
  }

  const draw = {
    // Plotly's own buttons become buttons of the page, which the keyboard reaches.
    figure(id, chart) {
      const { updatemenus, ...given } = chart.layout;
      const element = document.getElementById(id);
      Plotly.react(id, painted(chart.data), layout(painted(fitted(id, given))), config);
      if (updatemenus) {
        const views = updatemenus[0].buttons;
        choose(id, views.map((view) => view.label), (index) => {
          const [data, changed] = views[index].args;
          if (changed.height) element.style.height = changed.height + "px";
          Plotly.update(id, painted(data), painted(fitted(id, changed)));
        });
      } else if (chart.choices) {
        choose(id, chart.choices.map((choice) => choice.label), (index) => {
          Plotly.restyle(id, { visible: chart.choices[index].shown });
        });
      }
    },

    // The state that takes most of each column of pixels; columns are made anew for the times in view.
    timeline(id, chart) {
      const offsets = unpack(chart.offsets, "u4"), ends = unpack(chart.ends, "u4");
      const categories = unpack(chart.categories, "u1");
      const rows = offsets.length - 1, full = 2 ** 32 - 1, count = chart.names.length;
      const scale = chart.span / full;  // axis units per tick

      function columns(from, to, width) {
        const first = Math.max(0, from / scale), last = Math.min(full, to / scale), step = (last - first) / width;
        const z = [], text = [];
        for (let row = 0; row < rows; row++) {
          const best = new Uint8Array(width), names = new Array(width);
          let low = offsets[row], high = offsets[row + 1] - 1;
          while (low < high) {
            const middle = (low + high) >> 1;
            if (ends[middle] > first) high = middle; else low = middle + 1;
          }
          let run = low;
          const lastRun = offsets[row + 1] - 1, spent = new Float64Array(count);
          for (let column = 0; column < width; column++) {
            const right = first + (column + 1) * step;
            let position = first + column * step;
            spent.fill(0);
            for (;;) {
              const until = run < lastRun ? Math.min(ends[run], right) : right;
              if (until > position) { spent[categories[run]] += until - position; position = until; }
              if (run >= lastRun || ends[run] > right) break;
              run++;
            }
            let most = 0;
            for (let c = 1; c < count; c++) if (spent[c] > spent[most]) most = c;
            best[column] = most;
            names[column] = chart.names[most];
          }
          z.push(best);
          text.push(names);
        }
        return { z: [z], text: [text], x0: [(first + step / 2) * scale], dx: [step * scale] };
      }

      const element = document.getElementById(id);
      const width = () => Math.max(200, Math.min(1200, element.clientWidth - 90));
      const whole = columns(0, chart.span, width());
      const trace = {
        ...painted(chart.trace), z: whole.z[0], text: whole.text[0], x0: whole.x0[0], dx: whole.dx[0],
      };
      Plotly.newPlot(id, [trace], layout(painted(chart.layout)), config);
      let shown = "0:" + chart.span;
      element.on("plotly_relayout", () => {
        const range = element.layout.xaxis.range || [0, chart.span];
        const from = Math.max(0, Number(range[0])), to = Math.min(chart.span, Number(range[1]));
        if (shown === from + ":" + to || !(to > from)) return;
        shown = from + ":" + to;
        Plotly.restyle(id, columns(from, to, width()));
      });
    },

    matrix(id, chart) {
      const n = chart.num_cells, source = unpack(chart.source, "u1"), destination = unpack(chart.destination, "u1");
      const name = (cell) => {
        const first = cell * chart.ranks_per_cell, last = Math.min(first + chart.ranks_per_cell, chart.num_ranks) - 1;
        return first === last ? "rank " + first : "ranks " + first + "–" + last;
      };
      const grids = ["bytes", "count"].map((key) => {
        const values = unpack(chart[key], "f8"), unit = key === "bytes" ? "B" : "";
        const z = Array.from({ length: n }, () => new Array(n).fill(null));
        const text = Array.from({ length: n }, () => new Array(n).fill(""));
        let least = Infinity, most = -Infinity;
        for (let i = 0; i < values.length; i++) {
          const level = Math.log10(Math.max(values[i], 1));
          z[source[i]][destination[i]] = level;
          least = Math.min(least, level);
          most = Math.max(most, level);
          const amount = unit ? si(values[i], unit) : values[i].toLocaleString("en") + " messages";
          text[source[i]][destination[i]] = name(source[i]) + " to " + name(destination[i]) + "<br>" + amount;
        }
        const low = Math.floor(least), high = Math.max(Math.ceil(most), low + 1), ticks = [];
        for (let power = low; power <= high; power++) ticks.push(power);
        return { z, text, low, high, ticks, labels: ticks.map((power) => si(10 ** power, unit)) };
      });
      const bar = (g) => ({
        thickness: 14, outlinewidth: 0, tickvals: g.ticks, ticktext: g.labels, len: 1, lenmode: "fraction",
      });
      const trace = (g) => ({
        type: "heatmap", z: g.z, text: g.text, x0: 0, dx: chart.ranks_per_cell, y0: 0, dy: chart.ranks_per_cell,
        zmin: g.low, zmax: g.high, colorscale: painted(chart.colorscale), colorbar: bar(g), hoverongaps: false,
        xgap: n <= 32 ? 1 : 0, ygap: n <= 32 ? 1 : 0, hovertemplate: "%{text}<extra></extra>",
      });
      const show = (index) => Plotly.react(id, [trace(grids[index])], layout(chart.layout), config);
      show(0);
      choose(id, ["Bytes", "Messages"], show);
    },
  };

  // Long tables are shown by pages, of the rows that hold what is typed.
  function byPages(table) {
    const AT_ONCE = 100;
    const rows = [...table.tBodies[0].rows], bar = document.createElement("div"), told = document.createElement("span");
    const typed = Object.assign(document.createElement("input"), { type: "search", placeholder: "rows that hold ..." });
    typed.setAttribute("aria-label", "show the rows that hold this text");
    told.setAttribute("role", "status");
    let found = rows, first = 0;
    function show() {
      const seen = new Set(found.slice(first, first + AT_ONCE));
      for (const row of rows) row.hidden = !seen.has(row);
      told.textContent = found.length ? ` ${first + 1} to ${first + seen.size} of ${found.length} rows` : " no row";
    }
    const step = (text, by) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      button.addEventListener("click", () => {
        if (first + by >= 0 && first + by < found.length) first += by;
        show();
      });
      return button;
    };
    typed.addEventListener("input", () => {
      const words = typed.value.toLowerCase().split(/\s+/).filter(Boolean);
      found = rows.filter((row) => words.every((word) => row.textContent.toLowerCase().includes(word)));
      first = 0;
      show();
    });
    bar.className = "controls";
    bar.append(typed, step("Before", -AT_ONCE), step("Next", AT_ONCE), told);
    table.parentElement.before(bar);
    show();
  }
  document.querySelectorAll("table.paged").forEach(byPages);

  function drawAll() {
    for (const [id, chart] of Object.entries(charts)) draw[chart.kind](id, chart);
  }

  // Plotly's script is another file, or stands in this one compressed.
  async function load() {
    const held = document.getElementById("plotly");
    if (held.src) return;
    const packed = Uint8Array.from(atob(held.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.nonce = own.nonce;
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  load().then(() => {
    if (typeof Plotly === "undefined") throw new Error("plotly.min.js is not where the run wrote it");
    drawAll();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    document.documentElement.dataset.drawn = "yes";
  }).catch((error) => {
    const told = document.createElement("p");
    told.className = "notes";
    told.textContent = "The charts cannot be drawn (" + error.message + "). The tables are whole. Charts need a browser of "
      + "2023 or later, and beside a sweep's pages the file plotly.min.js.";
    document.querySelector("main").prepend(told);
  });
})();
