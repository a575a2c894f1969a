"use strict";
// The list of runs: sorted, filtered, and read again every few seconds while the page is seen.
(() => {
  const REFRESH_MS = 4000;
  const byId = (id) => document.getElementById(id);
  const collator = new Intl.Collator("en", { numeric: true });
  const columns = [
    { key: "name", title: "Run" }, { key: "target", title: "Target" },
    { key: "seconds", title: "Predicted time", number: true }, { key: "notes", title: "Notes" },
    { key: "date", title: "Date" }, { key: "status", title: "Status" }, { key: "", title: "Open" },
    { key: "", title: "Compare" },
  ];
  let runs = [], sort = { key: "date", down: true }, chosen = [], shown = "";
  const points = new Map();  // rows of the points of a sweep that is unfolded, by the run's id
  const unfoldedNotes = new Set();

  const valueOf = (run, key) => (key === "notes" ? run.notes.length : run[key]);
  function compareRuns(a, b) {
    const x = valueOf(a, sort.key), y = valueOf(b, sort.key);
    if (x === null || y === null) return (x === null) - (y === null);  // what has no figure comes last
    const order = typeof x === "number" ? x - y : collator.compare(x, y);
    return (sort.down ? -order : order) || collator.compare(a.name, b.name);
  }

  function time(run) {
    if (run.seconds === null) return "";
    const least = duration(run.seconds * 1e12);
    return run.most_seconds === null ? least : `${least} to ${duration(run.most_seconds * 1e12)}`;
  }

  function notes(run) {
    if (!run.notes.length) return "";
    const items = run.notes.map((note) => make("li", { textContent: `${note.severity} ${note.text}`.trim() }));
    const details = make("details", { open: unfoldedNotes.has(run.id) },
      make("summary", { textContent: `${run.notes.length} note${run.notes.length > 1 ? "s" : ""}` }),
      make("ul", {}, ...items));
    details.addEventListener("toggle", () => unfoldedNotes[details.open ? "add" : "delete"](run.id));
    return details;
  }

  function opened(run) {
    const holder = make("div", { className: "links" });
    const named = run.name;
    for (const page of run.pages) {
      const label = page === "report.html" ? "report" : decodeURIComponent(page);
      const link = make("a", { href: `files/${run.id}/${page}`, textContent: label, target: "_blank" });
      link.setAttribute("aria-label", `${label} of ${named}`);
      holder.append(link);
    }
    if (run.tables.length) {
      const link = make("a", { href: `timeline#${new URLSearchParams({ run: run.id })}`, textContent: "timeline" });
      link.setAttribute("aria-label", `timeline of ${named}`);
      holder.append(link);
    }
    if (run.points) {
      const button = make("button", { type: "button", id: `points-${run.id}`,
        textContent: `${run.points} point${run.points > 1 ? "s" : ""}` });
      button.setAttribute("aria-expanded", String(points.has(run.id)));
      button.addEventListener("click", () => unfold(run));
      holder.append(button);
    }
    return holder;
  }

  async function unfold(run) {
    if (points.has(run.id)) points.delete(run.id);
    else points.set(run.id, (await (await ask("points", { run: run.id })).json()).runs);
    draw();
  }

  function box(run) {
    if (!run.tables.length) return "";
    const input = make("input", { type: "checkbox", id: `box-${run.id}`, checked: chosen.includes(run.id) });
    input.setAttribute("aria-label", `compare the timeline of ${run.name}`);
    input.addEventListener("change", () => {
      chosen = chosen.filter((id) => id !== run.id).concat(input.checked ? [run.id] : []).slice(-2);
      draw();
    });
    return input;
  }

  function row(run, isPoint) {
    const date = run.date ? new Date(run.date * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : "";
    const status = run.problem ? make("span", { className: "warn", textContent: run.problem }) : run.status;
    const cells = [run.name, run.target, time(run), notes(run), date, status, opened(run), box(run)];
    return make("tr", { className: isPoint ? "point" : "" }, ...cells.map((content, index) =>
      make(index ? "td" : "th", { className: columns[index].number ? "number" : index ? "" : "name",
        scope: index ? undefined : "row" }, content)));
  }

  function heads() {
    byId("heads").replaceChildren(...columns.map((column) => {
      const head = make("th", { scope: "col", className: column.number ? "number" : "" });
      if (!column.key) return make("th", { scope: "col", textContent: column.title });
      const isSorted = sort.key === column.key;
      head.setAttribute("aria-sort", isSorted ? (sort.down ? "descending" : "ascending") : "none");
      const button = make("button", { type: "button", id: `by-${column.key}`,
        textContent: column.title + (isSorted ? (sort.down ? " ↓" : " ↑") : "") });
      button.addEventListener("click", () => {
        sort = { key: column.key, down: isSorted ? !sort.down : column.key === "date" };
        heads();
        draw();
        byId(`by-${column.key}`).focus();
      });
      head.append(button);
      return head;
    }));
  }

  function draw() {
    const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const target = byId("target").value, status = byId("status").value;
    const matches = (run) => (!target || run.target === target) && (!status || run.status === status) &&
      words.every((word) => [run.name, run.target, ...run.notes.map((note) => note.text)]
        .some((text) => text.toLowerCase().includes(word)));
    const seen = runs.filter(matches).sort(compareRuns);
    const focused = document.activeElement && document.activeElement.id;
    byId("rows").replaceChildren(...seen.flatMap((run) =>
      [row(run, false), ...(points.get(run.id) || []).map((point) => row(point, true))]));
    if (focused && byId(focused) && document.activeElement !== byId(focused)) byId(focused).focus();
    byId("said").textContent = runs.length
      ? `${seen.length} of ${runs.length} runs` : "There are no runs here yet; the list is read again by itself.";
    byId("compare").disabled = chosen.length !== 2;
  }

  function choices(id, values) {
    const select = byId(id), before = select.value;
    const options = [...new Set(values)].filter(Boolean).sort(collator.compare);
    select.replaceChildren(make("option", { value: "", textContent: "all" }),
      ...options.map((value) => make("option", { value, textContent: value })));
    select.value = options.includes(before) ? before : "";
  }

  async function refresh() {
    if (document.hidden) return;
    try {
      const text = await (await ask("runs", {})).text();
      if (text === shown) return;
      shown = text;
      const answer = JSON.parse(text);
      runs = answer.runs;
      byId("folder").textContent = `Runs in ${answer.folder}`;
      document.title = `Runs in ${answer.folder}`;
      for (const id of points.keys()) {
        if (runs.some((run) => run.id === id)) points.set(id, (await (await ask("points", { run: id })).json()).runs);
        else points.delete(id);
      }
      choices("target", runs.map((run) => run.target));
      choices("status", runs.map((run) => run.status));
      draw();
    } catch (error) {
      byId("said").textContent = `The list cannot be read: ${error.message}. Is \`manyscale view\` still running?`;
      shown = "";
    }
  }

  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", draw);
  byId("compare").addEventListener("click", () => {
    location.href = `timeline#${new URLSearchParams({ run: chosen[0], with: chosen[1] })}`;
  });
  document.addEventListener("visibilitychange", refresh);
  heads();
  refresh();
  setInterval(refresh, REFRESH_MS);
})();
