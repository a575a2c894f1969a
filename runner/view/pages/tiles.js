"use strict";
// One table of one run: what is known of it, and its tiles, fetched as they are wanted.
//
// A tile is a small canvas: 512 columns of 2^e ps, up to 256 rows of 2^r rows of the table each, a colour per cell.
class Source {
  static MOST_TILES = 256;  // 512 KiB each
  static AT_ONCE = 4;
  static ASK_AGAIN_MS = 150;
  static TRY_AGAIN_MS = 3000;  // what cannot be read may be in the middle of being written

  // `changed` is called whenever there is something new to draw.
  constructor(run, table, changed) {
    Object.assign(this, { run, table, changed, info: null, problem: "", progress: null });
    this.tiles = new Map();  // the one that was drawn last comes last
    this.wanted = [];
    this.pending = new Map();
    this.closed = false;
    this.open();
  }

  async open() {
    this.info = null;
    this.drop();
    try {
      while (!this.closed) {
        const info = await (await ask("table", { run: this.run, table: this.table })).json();
        if (info.state === "failed") throw new Error(info.problem);
        if (info.state === "ready") {
          this.info = info;
          this.colours = categoryColours(info);
          this.progress = null;
          this.problem = "";
          break;
        }
        this.progress = info;
        this.changed();
        await new Promise((resolve) => setTimeout(resolve, Source.ASK_AGAIN_MS));
      }
    } catch (error) {
      this.problem = error.message;
      setTimeout(() => this.closed || this.open(), Source.TRY_AGAIN_MS);
    }
    this.changed();
  }

  close() {
    this.closed = true;
    this.drop();
  }

  // Forget all tiles, since they are of another table, or in other colours.
  drop() {
    for (const controller of this.pending.values()) controller.abort();
    this.pending.clear();
    this.tiles.clear();
    this.wanted = [];
  }

  static key(e, i, r, j) { return `${e}/${i}/${r}/${j}`; }

  get(e, i, r, j) {
    const key = Source.key(e, i, r, j), found = this.tiles.get(key);
    if (found) {
      this.tiles.delete(key);
      this.tiles.set(key, found);
    }
    return found;
  }

  // What shall be there, the most urgent first; requests for anything else end.
  want(places) {
    this.wanted = places.filter((place) => !this.tiles.has(Source.key(...place)));
    const keys = new Set(this.wanted.map((place) => Source.key(...place)));
    for (const [key, controller] of this.pending) if (!keys.has(key)) controller.abort();
    this.fetchNext();
  }

  get isBusy() { return !this.problem && (!this.info || this.pending.size > 0 || this.wanted.length > 0); }

  fetchNext() {
    while (this.pending.size < Source.AT_ONCE) {
      const place = this.wanted.find((each) => !this.pending.has(Source.key(...each)));
      if (!place) return;
      this.fetch(place);
    }
  }

  async fetch(place) {
    const key = Source.key(...place), [e, i, r, j] = place, controller = new AbortController();
    this.pending.set(key, controller);
    try {
      const answer = await ask("tile", { run: this.run, table: this.table, version: this.info.version, e, i, r, j },
        { signal: controller.signal });
      this.keep(key, place, new Uint8Array(await answer.arrayBuffer()));
    } catch (error) {
      if (error.status === 410) { this.pending.delete(key); return void this.open(); }
      if (error.name !== "AbortError") this.problem = error.message;
    }
    if (this.pending.get(key) === controller) this.pending.delete(key);
    this.wanted = this.wanted.filter((each) => !this.tiles.has(Source.key(...each)));
    this.fetchNext();
    this.changed();
  }

  keep(key, [e, i, r, j], cells) {
    const width = this.info.columns, height = Math.max(1, cells.length / width);
    const canvas = make("canvas", { width, height }), context = canvas.getContext("2d");
    const image = context.createImageData(width, height), pixels = new Uint32Array(image.data.buffer);
    for (let index = 0; index < cells.length; index++) pixels[index] = this.colours.pixels[cells[index]];
    context.putImageData(image, 0, 0);
    this.tiles.set(key, { canvas, e, i, r, j, height });
    for (const old of this.tiles.keys()) {
      if (this.tiles.size <= Source.MOST_TILES) break;
      this.tiles.delete(old);
    }
  }
}

// Colours of categories: of states those of reports, of others hues that lie far apart, by their order.
function categoryColours(info) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const probe = make("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const names = info.categories.slice(0, info.mostCategories);
  const css = names.map((name, index) =>
    info.colours[name] || `hsl(${(index * 137.508 + 205) % 360} ${60 + 15 * (index % 2)}% ${dark ? 62 : 44}%)`);
  const pixels = new Uint32Array(256);  // 255, where nothing is recorded, stays transparent
  css.forEach((colour, index) => {
    probe.fillStyle = colour;
    probe.fillRect(0, 0, 1, 1);
    const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
    pixels[index] = (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
  });
  return { css, pixels, idle: dark ? "#2c353f" : info.colours.idle };
}
