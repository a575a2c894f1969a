"use strict";
// Draws a part of a source on a canvas: ruler, labels of rows, tiles, messages.
const GUTTER = 74, RULER = 24;  // CSS pixels left of and above the picture

const log2Level = (value, top) => Math.min(top, Math.max(0, Math.round(Math.log2(Math.max(value, 1)))));

// Steps of 1, 2 and 5 times powers of ten, at least `least`.
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9)));
  return Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * (1 - 1e-9)));
}

class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.styles();
  }

  // Colours as the page has them now.
  styles() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    this.style = { ink: value("--ink"), soft: value("--soft"), line: value("--line"), paper: value("--paper") };
  }

  // Size of the picture itself, in CSS pixels.
  fit() {
    const { clientWidth, clientHeight } = this.canvas, ratio = window.devicePixelRatio || 1;
    const width = Math.round(clientWidth * ratio), height = Math.round(clientHeight * ratio);
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    this.ratio = ratio;
    this.width = Math.max(1, clientWidth - GUTTER);
    this.height = Math.max(1, clientHeight - RULER);
  }

  // Draws what is there of the source; asks it for what is not. `view`: from, to in ps; `rows`: first, last as numbers.
  draw(source, view, rows, messages) {
    this.fit();
    const { context, style, width, height } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = style.paper;
    context.fillRect(0, 0, width + GUTTER, height + RULER);
    if (!source.info) return this.progress(source);
    const scale = { x: width / (view.to - view.from), y: height / (rows.last - rows.first) };
    context.save();
    context.beginPath();
    context.rect(GUTTER, RULER, width, height);
    context.clip();
    context.translate(GUTTER, RULER);
    context.fillStyle = source.colours.idle;
    const begin = Math.max(0, -view.from * scale.x), end = Math.min(width, (source.info.span - view.from) * scale.x);
    const top = Math.max(0, -rows.first * scale.y), bottom = Math.min(height, (source.info.rows - rows.first) * scale.y);
    context.fillRect(begin, top, Math.max(0, end - begin), Math.max(0, bottom - top));
    this.tiles(source, view, rows, scale);
    if (scale.y >= 6) this.gaps(rows, scale);
    this.messages(messages, view, rows, scale);
    context.restore();
    this.ruler(view, scale);
    this.labels(source, rows, scale);
  }

  progress(source) {
    const { context, style } = this, { done, all } = source.progress || {};
    context.fillStyle = style.ink;
    context.font = "14px system-ui, sans-serif";
    const part = all ? ` ${Math.floor(100 * done / all)} % of ${all.toLocaleString("en")} segments` : "";
    context.fillText(source.problem || `Reading the timeline ...${part}`, GUTTER, RULER + 24);
  }

  // Tiles of the level that fits; where one is missing, what is there of other levels, the finest on top.
  tiles(source, view, rows, scale) {
    const { info } = source, device = this.ratio;
    const e = log2Level(1 / (scale.x * device), info.top), r = log2Level(1 / (scale.y * device), info.topRows);
    const needed = Drawing.places(info, e, r, view, rows);
    const found = needed.map((place) => source.get(...place));
    this.context.imageSmoothingEnabled = false;
    if (found.some((tile) => !tile)) {
      const others = [...source.tiles.values()].filter((tile) => tile.e !== e || tile.r !== r);
      others.sort((a, b) => b.e + b.r - a.e - a.r);
      for (const tile of others) this.tile(info, tile, view, rows, scale);
    }
    for (const tile of found) if (tile) this.tile(info, tile, view, rows, scale);
    source.want([...needed, ...Drawing.around(info, e, r, view, rows, needed)]);
  }

  // Places of tiles that a view needs, from its middle outward.
  static places(info, e, r, view, rows) {
    const wide = info.columns * 2 ** e, high = info.tileRows * 2 ** r;
    const span = (low, high, size, most) => {
      const first = Math.max(0, Math.floor(low / size)), last = Math.min(Math.ceil(most / size), Math.ceil(high / size)) - 1;
      return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
    };
    const across = span(view.from, view.to, wide, info.span), down = span(rows.first, rows.last, high, info.rows);
    const x = (view.from + view.to) / 2 / wide - 0.5, y = (rows.first + rows.last) / 2 / high - 0.5;
    return across.flatMap((i) => down.map((j) => [e, i, r, j]))
      .sort((a, b) => Math.hypot(a[1] - x, a[3] - y) - Math.hypot(b[1] - x, b[3] - y));
  }

  // What is likely to be needed next: neighbours in time, the level above, and the middle of the level below.
  static around(info, e, r, view, rows, needed) {
    const known = new Set(needed.map((place) => Source.key(...place))), width = view.to - view.from;
    const wider = { from: Math.max(0, view.from - width / 2), to: Math.min(info.span, view.to + width / 2) };
    const inner = { from: view.from + width / 4, to: view.to - width / 4 };
    return [
      ...(e < info.top ? Drawing.places(info, e + 1, r, view, rows) : []),
      ...Drawing.places(info, e, r, wider, rows),
      ...(e > 0 ? Drawing.places(info, e - 1, r, inner, rows) : []),
    ].filter((place) => !known.has(Source.key(...place)));
  }

  // The part of a tile that is in view. Only that part is scaled: a whole coarse tile would be millions of pixels wide.
  tile(info, tile, view, rows, scale) {
    const column = 2 ** tile.e, row = 2 ** tile.r;
    const left = tile.i * info.columns * column, top = tile.j * info.tileRows * row;
    const x0 = Math.max(0, Math.floor((view.from - left) / column)), y0 = Math.max(0, Math.floor((rows.first - top) / row));
    const x1 = Math.min(info.columns, Math.ceil((view.to - left) / column));
    const y1 = Math.min(tile.height, Math.ceil((rows.last - top) / row));
    if (x1 <= x0 || y1 <= y0) return;
    this.context.drawImage(tile.canvas, x0, y0, x1 - x0, y1 - y0,
      (left + x0 * column - view.from) * scale.x, (top + y0 * row - rows.first) * scale.y,
      (x1 - x0) * column * scale.x, (y1 - y0) * row * scale.y);
  }

  gaps(rows, scale) {
    this.context.fillStyle = this.style.paper;
    for (let row = Math.ceil(rows.first); row <= rows.last; row++) {
      this.context.fillRect(0, (row - rows.first) * scale.y - 0.5, this.width, 1);
    }
  }

  messages(messages, view, rows, scale) {
    if (!messages || messages.state !== "ready") return;
    const { context } = this, y = (row) => (row + 0.5 - rows.first) * scale.y;
    context.strokeStyle = this.style.ink;
    context.lineWidth = 1;
    context.beginPath();
    messages.source.forEach((source, index) => {
      context.moveTo((messages.send[index] - view.from) * scale.x, y(source));
      context.lineTo((messages.receive[index] - view.from) * scale.x, y(messages.destination[index]));
    });
    context.stroke();
  }

  ruler(view, scale) {
    const { context, style } = this, step = roundStep(110 / scale.x);
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "left";
    for (let ps = Math.ceil(view.from / step) * step; ps <= view.to; ps += step) {
      const x = GUTTER + (ps - view.from) * scale.x;
      context.fillStyle = style.soft;
      context.fillRect(x, RULER - 6, 1, 6);
      context.fillStyle = style.ink;
      if (x + 60 < GUTTER + this.width) context.fillText(tick(ps, step, Math.max(Math.abs(view.to), step)), x + 3, RULER - 8);
    }
  }

  labels(source, rows, scale) {
    const { context, style } = this, { labels } = source.info, step = roundStep(16 / scale.y);
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "right";
    context.fillStyle = style.ink;
    for (let row = Math.ceil(Math.max(0, rows.first) / step) * step; row < Math.min(source.info.rows, rows.last); row += step) {
      const y = RULER + (row + 0.5 - rows.first) * scale.y;
      if (y > RULER + 2 && y < RULER + this.height) context.fillText(labels ? labels[row] : String(row), GUTTER - 6, y + 4);
    }
  }
}
