"use strict";
// Draws the charts of a report. Each entry of the page's data names one of the functions in `draw`.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const config = {
    displaylogo: false, responsive: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toggleSpikelines"],
  };
  const ink = "#1c2530", grid = "#e6eaee";

  const axis = (given) => ({
    gridcolor: grid, zerolinecolor: grid, linecolor: "#b9c2cc", automargin: true, ...given,
    title: { standoff: 10, font: { size: 13 }, ...(given || {}).title },
  });
  const layout = (given) => ({
    font: { family: 'system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif', size: 12.5, color: ink },
    paper_bgcolor: "#fff", plot_bgcolor: "#fff", margin: { l: 56, r: 16, t: 30, b: 46 },
    hoverlabel: { font: { size: 12.5 } }, ...given, xaxis: axis(given.xaxis), yaxis: axis(given.yaxis),
  });

  const types = { u1: Uint8Array, u4: Uint32Array, f8: Float64Array };
  function unpack(text, type) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new types[type](bytes.buffer);
  }

  function choose(id, labels, apply) {
    const holder = document.getElementById(id + "-controls");
    labels.forEach((label, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.setAttribute("aria-pressed", String(index === 0));
      button.addEventListener("click", () => {
        for (const other of holder.children) other.setAttribute("aria-pressed", String(other === button));
        apply(index);
      });
      holder.append(button);
    });
  }

  const si = (value, unit) => {
    const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
    const [factor, prefix] = steps.find(([least]) => value >= least) || [1, ""];
    return Number((value / factor).toPrecision(4)) + " " + prefix + unit;
  };

  // A steady scale of colours in which each category has one.
  const steps = (colours) => colours.flatMap((colour, i) =>
    [[i / colours.length, colour], [(i + 1) / colours.length, colour]]);

  const draw = {
    figure(id, chart) {
      Plotly.newPlot(id, chart.data, layout(chart.layout), config);
      if (!chart.choices) return;
      choose(id, chart.choices.map((choice) => choice.label), (index) => {
        const choice = chart.choices[index];
        Plotly.restyle(id, choice.shown ? { visible: choice.shown } : { y: choice.y });
      });
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
        type: "heatmap", z: whole.z[0], text: whole.text[0], x0: whole.x0[0], dx: whole.dx[0], y0: 0,
        dy: chart.rank_step, zmin: -0.5, zmax: count - 0.5, colorscale: steps(chart.colours), showscale: false,
        ygap: rows <= 64 ? 1 : 0, hovertemplate: "rank %{y}, %{x:.6~g} " + chart.unit + "<br>%{text}<extra></extra>",
      };
      Plotly.newPlot(id, [trace], layout(chart.layout), config);
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
        zmin: g.low, zmax: g.high, colorscale: chart.colorscale, colorbar: bar(g), hoverongaps: false,
        xgap: n <= 32 ? 1 : 0, ygap: n <= 32 ? 1 : 0, hovertemplate: "%{text}<extra></extra>",
      });
      Plotly.newPlot(id, [trace(grids[0])], layout(chart.layout), config);
      choose(id, ["Bytes", "Messages"], (index) => Plotly.react(id, [trace(grids[index])], layout(chart.layout), config));
    },
  };

  for (const [id, chart] of Object.entries(charts)) draw[chart.kind](id, chart);
})();
