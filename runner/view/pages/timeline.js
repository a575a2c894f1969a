"use strict";
// The page of timelines: one or two runs above each other, with one scale of time; what is shown stands in the address.
(() => {
  const byId = (id) => document.getElementById(id);
  const LABELS = { ranks: "ranks", cores: "cores", launches: "kernel launches" };
  const MESSAGE_ROW = 5;  // CSS pixels of a row from which on messages are drawn
  const view = { from: 0, to: 0 };  // ps; to = 0: the whole of what is shown
  let panels = [], runs = [], dirty = false, hashTimer = 0;

  const longest = () => Math.max(1, ...panels.map((panel) => (panel.source.info ? panel.source.info.span : 0)));

  function redraw() {
    if (dirty) return;
    dirty = true;
    requestAnimationFrame(() => {
      dirty = false;
      for (const panel of panels) panel.draw();
    });
  }

  function setView(from, to) {
    const most = longest(), width = Math.min(Math.max(to - from, 16), most * 1.04);
    view.from = Math.min(Math.max(from, -most * 0.02), most * 1.02 - width);
    view.to = view.from + width;
    moved();
  }

  function moved() {
    clearTimeout(hashTimer);
    hashTimer = setTimeout(remember, 150);
    redraw();
  }

  function zoom(factor, at) {
    const middle = at === undefined ? (view.from + view.to) / 2 : at;
    setView(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
  }

  const pan = (part) => setView(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));

  // Address

  function remember() {
    if (!panels.length) return;
    const words = new URLSearchParams({ run: panels[0].run });
    if (panels[1]) words.set("with", panels[1].run);
    if (panels[0].table !== "ranks") words.set("table", panels[0].table);
    const whole = view.from <= 0 && view.to >= longest();
    if (view.to && !whole) {
      words.set("from", Math.max(0, Math.floor(view.from)));
      words.set("to", Math.ceil(view.to));
    }
    const { rows, source } = panels[0];
    if (rows && source.info && rows.last - rows.first < source.info.rows - 0.5) {
      words.set("rows", `${rows.first.toFixed(1)}-${rows.last.toFixed(1)}`);
    }
    history.replaceState(null, "", `#${words}`);
    if (document.activeElement !== byId("from")) byId("from").value = duration(Math.max(0, view.from), 1);
    if (document.activeElement !== byId("to")) byId("to").value = duration(Math.min(view.to, longest()), 1);
  }

  // One timeline

  class Panel {
    constructor(run, table, rows) {
      Object.assign(this, { run, table, rows, messages: null, asked: "", timers: {}, cursor: null });
      const known = runs.find((each) => each.id === run);
      this.name = known ? known.name : decodeURIComponent(run);
      this.canvas = make("canvas", { tabIndex: 0 });
      this.canvas.setAttribute("role", "application");
      this.canvas.setAttribute("aria-roledescription", "timeline");
      this.canvas.setAttribute("aria-label", `timeline of ${this.name}; Enter reads the segment in the middle`);
      this.tip = make("div", { className: "tip", hidden: true });
      this.legend = make("ul", { className: "legend" });
      this.counts = make("span", { className: "soft" });
      const choice = make("select");
      choice.setAttribute("aria-label", `rows of the timeline of ${this.name}`);
      for (const name of known ? known.tables : [table]) {
        choice.append(make("option", { value: name, textContent: LABELS[name], selected: name === table }));
      }
      choice.addEventListener("change", () => {
        this.table = choice.value;
        this.rows = null;
        this.load();
        moved();
      });
      this.element = make("section", { className: "panel" },
        make("div", { className: "head" }, make("h2", { textContent: this.name }), choice, this.counts),
        make("div", { className: "holder" }, this.canvas, this.tip), this.legend);
      byId("panels").append(this.element);
      this.drawing = new Drawing(this.canvas);
      this.listen();
      this.load();
    }

    load() {
      if (this.source) this.source.close();
      this.messages = null;
      this.asked = "";
      this.source = new Source(this.run, this.table, () => { this.arrived(); redraw(); });
    }

    close() {
      this.source.close();
      this.element.remove();
    }

    arrived() {
      const { info, problem } = this.source;
      if (problem) this.counts.textContent = problem;
      if (!info || this.known === info) return;
      this.known = info;
      this.size = `${info.segments.toLocaleString("en")} segments, ${info.rows.toLocaleString("en")} row${info.rows === 1 ? "" : "s"}, ` +
        duration(info.span);
      this.counts.textContent = this.size;
      this.canvas.style.setProperty("--rows", Math.max(2, info.rows));
      const names = info.categories.slice(0, info.mostCategories).map((name, index) => [name, this.source.colours.css[index]]);
      if (info.categories.length > info.mostCategories) names[names.length - 1][0] = "others";
      this.legend.replaceChildren(...[...names, ["idle", this.source.colours.idle]].map(([name, colour]) => {
        const swatch = make("i");
        swatch.style.background = colour;
        return make("li", {}, swatch, name);
      }));
      if (!this.rows) this.rows = { first: 0, last: Math.max(1, info.rows) };
      if (!view.to) setView(0, longest());
      remember();
    }

    draw() {
      if (this.source.info && !view.to) setView(0, longest());
      this.drawing.draw(this.source, view, this.rows || { first: 0, last: 1 }, this.messages);
      this.canvas.setAttribute("aria-busy", String(this.source.isBusy));
      this.askMessages();
    }

    setRows(first, last) {
      const most = this.source.info ? this.source.info.rows : 1;
      const height = Math.min(Math.max(last - first, 1), Math.max(most, 1));
      const begin = Math.min(Math.max(first, 0), most - height);
      this.rows = { first: begin, last: begin + height };
      moved();
    }

    zoomRows(factor, at) {
      const { first, last } = this.rows, middle = at === undefined ? (first + last) / 2 : at;
      this.setRows(middle - (middle - first) * factor, middle + (last - middle) * factor);
    }

    panRows(part) {
      const { first, last } = this.rows;
      this.setRows(first + part * (last - first), last + part * (last - first));
    }

    // Messages of what is in view, once it has come to rest; those at hand are drawn meanwhile.
    askMessages() {
      const { info } = this.source;
      if (!info || this.table !== "ranks" || !this.rows) return;
      if (this.drawing.height / (this.rows.last - this.rows.first) < MESSAGE_ROW) { this.messages = null; this.asked = ""; return; }
      const window = { from: Math.max(0, Math.floor(view.from)), to: Math.max(0, Math.ceil(view.to)),
        first: Math.floor(this.rows.first), last: Math.ceil(this.rows.last) };
      const key = JSON.stringify(window);
      if (key === this.asked) return;
      this.asked = key;
      clearTimeout(this.timers.messages);
      this.timers.messages = setTimeout(async () => {
        const answer = await ask("messages", { run: this.run, ...window }).then((each) => each.json(), () => null);
        if (this.asked !== key) return;
        this.messages = answer;
        if (answer && answer.state === "reading") this.asked = "";
        this.canvas.dataset.messages = answer ? String((answer.source || []).length) : "";
        redraw();
      }, 120);
    }

    // The segment under a point, as text; null where there is none.
    async at(row, ps) {
      const { info } = this.source;
      if (!info || row < 0 || row >= info.rows || ps < 0 || ps > info.span) return null;
      const answer = await (await ask("at", { run: this.run, table: this.table, version: info.version, row, ps: Math.floor(ps) })).json();
      const rank = info.labels ? `rank.core ${answer.row}` : `rank ${answer.row}`;
      if (answer.problem) this.counts.textContent = `${this.size}; calls have no names (${answer.problem})`;
      if (!answer.segments.length) return { text: `${rank}: idle at ${duration(ps, 1)}`, segment: null };
      const lines = answer.segments.map((each) => {
        const call = each.call ? `, ${each.category ? "in" : "before"} ${each.call}` : "";
        return `${info.categories[each.category]}${call}, from ${duration(each.start, 1)}, for ${duration(each.end - each.start)}, ` +
          `${answer.item} ${each.item}`;
      });
      return { text: `${rank}: ${lines.join("; ")}`,
        segment: answer.segments[0] };
    }

    place(event) {
      const box = this.canvas.getBoundingClientRect(), rows = this.rows || { first: 0, last: 1 };
      const x = event.clientX - box.left - GUTTER, y = event.clientY - box.top - RULER;
      return { x, y, ps: view.from + x / this.drawing.width * (view.to - view.from),
        row: rows.first + y / this.drawing.height * (rows.last - rows.first) };
    }

    hover(event) {
      clearTimeout(this.timers.hover);
      const place = this.place(event);
      this.tip.hidden = true;
      if (place.x < 0 || place.y < 0 || !this.rows) return;
      this.timers.hover = setTimeout(async () => {
        const found = await this.at(Math.floor(place.row), place.ps).catch(() => null);
        if (!found) return;
        this.tip.textContent = found.text;
        this.tip.hidden = false;
        const left = Math.min(place.x + GUTTER + 14, this.canvas.clientWidth - this.tip.offsetWidth - 4);
        Object.assign(this.tip.style, { left: `${Math.max(0, left)}px`, top: `${place.y + RULER + 16}px` });
        this.cursor = { row: Math.floor(place.row), segment: found.segment };
      }, 40);
    }

    async read(direction) {
      let { row, segment } = this.cursor || {};
      let ps = (view.from + view.to) / 2;
      if (direction && segment) ps = direction > 0 ? segment.end : segment.start - 1;
      else row = Math.floor((this.rows.first + this.rows.last) / 2);
      const found = await this.at(row, ps).catch((error) => ({ text: error.message, segment: null }));
      byId("said").textContent = found ? found.text : "there is nothing";
      if (!found) return;
      this.cursor = { row, segment: found.segment };
      const outside = found.segment && (found.segment.end <= view.from || found.segment.start >= view.to);
      if (outside) setView(ps - (view.to - view.from) / 2, ps + (view.to - view.from) / 2);
    }

    listen() {
      const { canvas } = this;
      canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        const place = this.place(event), delta = event.deltaY || event.deltaX;
        const factor = Math.exp(Math.max(-300, Math.min(300, delta)) * 0.0015);
        if (event.shiftKey) this.zoomRows(factor, place.row);
        else zoom(factor, place.ps);
      }, { passive: false });
      let held = null;
      canvas.addEventListener("pointerdown", (event) => {
        held = { x: event.clientX, y: event.clientY };
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointermove", (event) => {
        if (!held) return this.hover(event);
        this.tip.hidden = true;
        const across = (held.x - event.clientX) / this.drawing.width, down = (held.y - event.clientY) / this.drawing.height;
        held = { x: event.clientX, y: event.clientY };
        pan(across);
        if (this.rows) this.panRows(down);
      });
      for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { held = null; });
      canvas.addEventListener("pointerleave", () => { clearTimeout(this.timers.hover); this.tip.hidden = true; });
      canvas.addEventListener("dblclick", (event) => zoom(0.4, this.place(event).ps));
      canvas.addEventListener("keydown", (event) => this.key(event));
    }

    key(event) {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.rows) return;
      const actions = {
        ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), Home: whole,
        ArrowUp: () => (event.shiftKey ? this.zoomRows(0.7) : this.panRows(-0.15)),
        ArrowDown: () => (event.shiftKey ? this.zoomRows(1 / 0.7) : this.panRows(0.15)),
        PageUp: () => this.panRows(-1), PageDown: () => this.panRows(1),
        "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
        Enter: () => this.read(0), ".": () => this.read(1), ",": () => this.read(-1),
      };
      if (!actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    }
  }

  function whole() {
    for (const panel of panels) if (panel.source.info) panel.setRows(0, panel.source.info.rows);
    setView(0, longest());
  }

  // Controls

  function goTo() {
    const from = parseTime(byId("from").value), to = parseTime(byId("to").value), text = byId("rank").value.trim();
    const { info } = panels[0].source;
    const said = (line) => { byId("said").textContent = line; };
    if (!info) return;
    if (!(to > from)) return said('From and To are times such as "1.5 ms" or "20 us", From before To.');
    if (text) {
      const row = info.labels ? info.labels.indexOf(text.includes(".") ? text : `${text}.0`) : /^\d+$/.test(text) ? Number(text) : -1;
      if (row < 0 || row >= info.rows) {
        const last = info.labels ? info.labels[info.labels.length - 1] : info.rows - 1;
        return said(`There is no rank ${text}; the last is ${last}.`);
      }
      const height = Math.min(32, info.rows);
      for (const panel of panels) if (panel.source.info) panel.setRows(row - height / 2, row + height / 2);
    }
    said("");
    setView(from, to);
  }

  function start() {
    const words = new URLSearchParams(location.hash.slice(1)), run = words.get("run");
    for (const panel of panels) panel.close();
    panels = [];
    if (!run) { byId("said").textContent = "Choose a run from the list."; return; }
    const from = Number(words.get("from")), to = Number(words.get("to"));
    Object.assign(view, to > from && from >= 0 ? { from, to } : { from: 0, to: 0 });
    const [first, last] = (words.get("rows") || "").split("-").map(Number);
    const rows = last > first ? { first, last } : null;
    const other = words.get("with");
    byId("with").value = other || "";
    const table = LABELS[words.get("table")] ? words.get("table") : "ranks";
    for (const id of [run, ...(other ? [other] : [])]) panels.push(new Panel(id, table, rows && { ...rows }));
    document.body.dataset.panels = String(panels.length);
    document.title = `Timeline of ${panels.map((panel) => panel.name).join(" and ")}`;
  }

  async function listed() {
    const answer = await (await ask("runs", {})).json();
    runs = answer.runs.filter((run) => run.tables.length);
    const sweeps = answer.runs.filter((run) => run.points);
    for (const sweep of sweeps) {
      const { runs: points } = await (await ask("points", { run: sweep.id })).json();
      runs.push(...points.filter((point) => point.tables.length).map((point) => ({ ...point, name: `${sweep.name}: ${point.name}` })));
    }
    byId("with").append(...runs.map((run) => make("option", { value: run.id, textContent: run.name })));
  }

  byId("left").addEventListener("click", () => pan(-0.3));
  byId("right").addEventListener("click", () => pan(0.3));
  byId("in").addEventListener("click", () => zoom(0.5));
  byId("out").addEventListener("click", () => zoom(2));
  byId("whole").addEventListener("click", whole);
  byId("controls").addEventListener("submit", (event) => { event.preventDefault(); if (panels.length) goTo(); });
  byId("with").addEventListener("change", () => {
    remember();
    const words = new URLSearchParams(location.hash.slice(1));
    if (byId("with").value) words.set("with", byId("with").value);
    else words.delete("with");
    history.replaceState(null, "", `#${words}`);
    start();
  });
  window.addEventListener("hashchange", start);
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const panel of panels) {
      panel.drawing.styles();
      panel.load();
    }
  });
  listed().catch((error) => { byId("said").textContent = error.message; }).then(start);
})();
