// Scrolling through any number of rows. A browser's elements can't be higher than some ten million pixels,
// so beyond that the scroll bar stands for more: small movements (wheel, touch, keys) move by their own pixels, a jump
// (the bar dragged, Home, End) goes to the part of all that the bar shows. Near both ends a pixel is a pixel always, so
// that each can be reached. What is drawn doesn't scroll: it sticks to the window, and is drawn again for each position.
// Rows of several heights are measured as they are drawn: small movements walk the heights that are known, a jump goes by the
// rows' numbers, Home and End lead to the rows' ends. Where one went to is an aim, which gives the position again as heights
// become known.

const MAX_HEIGHT = 8_000_000;
const EXACT = 1_000_000; // pixels at each end that are what they say, where all rows have one height
const IDLE_MS = 150;
const MAX_DRAWS = 4; // in a frame, until heights and position agree; then in the next one

export class Scroller {
  /** container: scrolls; layer: sticks inside it; draw: is called with the position, in rows, whenever it changes; gives
   * whether rows have other heights than before. */
  constructor(container, layer, rowHeight, draw) {
    this.container = container;
    this.layer = layer;
    this.rowHeight = rowHeight;
    this.draw = draw;
    this.heights = null; // RowHeights; null: each row is as high as any
    this.total = 0;
    this.position = 0; // in rows, with a fraction
    this.aim = () => 0; // the position that is meant, by the heights that are known
    this.spacer = document.createElement("div");
    this.spacer.className = "spacer";
    container.append(this.spacer);
    this.top = 0; // the container's scrollTop that is known
    this.frame = 0;
    this.idle = 0;
    this.moving = false; // somebody scrolls: by hand, or still rolling
    container.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    container.addEventListener("keydown", (event) => this.#pressed(event));
    this.observer = new ResizeObserver(() => this.#resized());
    this.observer.observe(container);
  }

  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.idle);
  }

  get height() {
    return this.container.clientHeight;
  }

  /** Rows that are seen, the cut ones included; fewer where some are higher. */
  get rows() {
    return Math.ceil(this.height / this.rowHeight) + 1;
  }

  /** The last position: its rows fill the window. */
  get end() {
    return this.#endOf(this.total);
  }

  get atEnd() {
    return this.walk(this.position, this.rowHeight / 2) >= this.end;
  }

  /** The position that is so many pixels below another, or above where they are negative. */
  walk(position, pixels) {
    if (!this.heights) return position + pixels / this.rowHeight;
    let row = Math.floor(position);
    let left = (position - row) * this.#heightOf(row) + pixels; // from the row's top
    while (left < 0 && row > 0) left += this.#heightOf((row -= 1));
    while (row < this.total && left >= this.#heightOf(row)) left -= this.#heightOf(row++);
    return row + left / this.#heightOf(row);
  }

  /** heights: RowHeights, or null where rows have one height from now on. */
  setHeights(heights) {
    this.heights = heights;
    this.#resized();
  }

  setTotal(total) {
    if (total !== this.total) {
      this.total = total;
      this.#stretch();
      if (!this.moving) this.#settle(); // the bar isn't touched while somebody has hold of it
    }
    this.redraw();
  }

  /** To a row, given with a fraction, and no further than to the end of what there is now. */
  goTo(position) {
    this.#goTo(this.#aimAt(position));
  }

  /** Has the row seen, in the middle where it isn't already. */
  show(row) {
    this.#goTo(() => (this.#isInside(row) ? this.position : this.#middle(row)));
  }

  redraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      for (let draws = 1; this.draw(this.position) && !this.moving; draws += 1) {
        this.#stretch();
        this.#settle();
        if (draws === MAX_DRAWS) {
          this.redraw();
          return;
        }
      }
    });
  }

  #endOf(total) {
    return Math.max(this.walk(total, -this.height), 0);
  }

  #heightOf(row) {
    return row < this.total ? this.heights.of(row) : this.rowHeight;
  }

  /** Whether a row is seen, and the one before and after it. */
  #isInside(row) {
    return row > Math.ceil(this.position) && row + 2 <= this.walk(this.position, this.height);
  }

  /** The position that has a row in the middle, or its beginning on top where it is higher than the window. */
  #middle(row) {
    const height = this.heights ? this.#heightOf(row) : this.rowHeight;
    return Math.ceil(this.walk(row, -Math.max((this.height - height) / 2, 0)));
  }

  #goTo(aim) {
    this.aim = aim;
    this.#settle();
    this.redraw();
  }

  #aimAt(position) {
    const { total } = this;
    return () => Math.min(position, this.#endOf(total));
  }

  /** Moves to what is aimed at, as far as there are rows. */
  #settle() {
    this.position = Math.min(Math.max(this.aim(), 0), this.end);
    this.#align();
  }

  get #range() {
    return Math.max(this.container.scrollHeight - this.height, 0);
  }

  #topOf(position) {
    const range = this.#range;
    if (this.heights) return this.#topAmongHeights(position, range);
    const pixels = position * this.rowHeight;
    const all = this.end * this.rowHeight;
    if (all <= range + 1) return pixels;
    if (pixels <= EXACT) return pixels;
    if (all - pixels <= EXACT) return range - (all - pixels);
    return EXACT + ((pixels - EXACT) / (all - 2 * EXACT)) * (range - 2 * EXACT);
  }

  /** By the rows' numbers, but no nearer to an end of the bar than the rows are to theirs: a movement reaches them. */
  #topAmongHeights(position, range) {
    const near = Math.min(2 * this.height, range / 2);
    const above = this.#pixels(0, position, near);
    if (above < near) return above;
    const below = this.#pixels(position, this.end, near);
    if (below < near) return range - below;
    return Math.min(Math.max((position / this.end) * range, near), range - near);
  }

  /** From one position to another below it, and no more than `most`. */
  #pixels(from, to, most) {
    let pixels = 0;
    for (let at = from; at < to && pixels < most; at = Math.floor(at) + 1) {
      pixels += (Math.min(to, Math.floor(at) + 1) - at) * this.#heightOf(Math.floor(at));
    }
    return Math.min(pixels, most);
  }

  #positionOf(top) {
    const range = this.#range;
    if (this.heights) return range && (top / range) * this.end;
    const all = this.end * this.rowHeight;
    let pixels;
    if (all <= range + 1 || top <= EXACT) pixels = top;
    else if (range - top <= EXACT) pixels = all - (range - top);
    else pixels = EXACT + ((top - EXACT) / (range - 2 * EXACT)) * (all - 2 * EXACT);
    return pixels / this.rowHeight;
  }

  /** Puts the bar where the position says. */
  #align() {
    const top = Math.round(this.#topOf(this.position));
    if (Math.abs(this.container.scrollTop - top) >= 1) this.container.scrollTop = top;
    this.top = this.container.scrollTop;
  }

  #scrolled() {
    const top = this.container.scrollTop;
    const moved = top - this.top;
    if (moved !== 0) {
      this.top = top;
      this.#move(top, moved);
      this.onmove?.();
      this.moving = true;
      clearTimeout(this.idle);
      this.idle = setTimeout(() => {
        this.moving = false;
        this.#stretch();
        this.#settle();
        this.redraw();
      }, IDLE_MS);
    }
    this.redraw(); // to the side, too
  }

  /** The browser's own Home and End lead to the bar's ends, which may be near: where rows wrap, the rows' aren't. */
  #pressed(event) {
    const position = { Home: 0, End: Infinity }[event.key];
    if (!this.heights || position === undefined || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.goTo(position);
    this.onmove?.();
  }

  /** As the bar was moved: to `top`, by `moved` pixels. */
  #move(top, moved) {
    const { end } = this;
    const fromEnd = Math.min(top, this.#range - top);
    const isSmall = Math.abs(moved) <= 2 * this.height && (this.heights || (top > 0 && top < this.#range - 1));
    const position = isSmall ? this.walk(this.position, moved) : this.#positionOf(top);
    this.position = Math.min(Math.max(position, 0), end);
    this.aim = this.#aimAt(position < end ? this.position : Infinity);
    if (this.heights && isSmall && fromEnd < this.height) this.#align(); // the bar is near an end, the rows perhaps not
  }

  #stretch() {
    const height = Math.min(this.total * (this.heights?.mean ?? this.rowHeight), MAX_HEIGHT);
    this.spacer.style.height = `${Math.max(height - this.height, 0)}px`;
  }

  #resized() {
    this.#stretch();
    this.onresize?.();
    this.#settle();
    this.redraw();
  }
}
