// Scrolling through any number of rows of one height. A browser's elements can't be higher than some ten million pixels,
// so beyond that the scroll bar stands for more: small movements (wheel, touch, keys) move by their own pixels, a jump
// (the bar dragged, Home, End) goes to the part of all that the bar shows. Near both ends a pixel is a pixel always, so
// that each can be reached. What is drawn doesn't scroll: it sticks to the window, and is drawn again for each position.

const MAX_HEIGHT = 8_000_000;
const EXACT = 1_000_000; // pixels at each end that are what they say
const IDLE_MS = 150;

export class Scroller {
  /** container: scrolls; layer: sticks inside it; draw: is called with the position, in rows, whenever it changes. */
  constructor(container, layer, rowHeight, draw) {
    this.container = container;
    this.layer = layer;
    this.rowHeight = rowHeight;
    this.draw = draw;
    this.total = 0;
    this.position = 0; // in rows, with a fraction
    this.spacer = document.createElement("div");
    this.spacer.className = "spacer";
    container.append(this.spacer);
    this.top = 0; // the container's scrollTop that is known
    this.frame = 0;
    this.idle = 0;
    this.moving = false; // somebody scrolls: by hand, or still rolling
    container.addEventListener("scroll", () => this.#scrolled(), { passive: true });
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

  /** Rows that are seen, the cut ones included. */
  get rows() {
    return Math.ceil(this.height / this.rowHeight) + 1;
  }

  /** The last position: its rows fill the window. */
  get end() {
    return Math.max(this.total - this.height / this.rowHeight, 0);
  }

  get atEnd() {
    return this.position >= this.end - 0.5;
  }

  setTotal(total) {
    if (total === this.total) {
      this.redraw();
      return;
    }
    this.total = total;
    this.#stretch();
    if (this.moving) this.redraw(); // the bar isn't touched while somebody has hold of it
    else this.goTo(this.position);
  }

  /** To a row, given with a fraction. */
  goTo(position) {
    this.position = Math.min(Math.max(position, 0), this.end);
    this.#align();
    this.redraw();
  }

  /** Has the row seen, in the middle where it isn't already. */
  show(row) {
    const first = Math.ceil(this.position);
    const seen = Math.floor(this.height / this.rowHeight);
    if (row < first + 1 || row > first + seen - 2) this.goTo(row - Math.floor(seen / 2));
  }

  redraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw(this.position);
    });
  }

  get #range() {
    return Math.max(this.container.scrollHeight - this.height, 0);
  }

  #topOf(position) {
    const range = this.#range;
    const pixels = position * this.rowHeight;
    const all = this.end * this.rowHeight;
    if (all <= range + 1) return pixels;
    if (pixels <= EXACT) return pixels;
    if (all - pixels <= EXACT) return range - (all - pixels);
    return EXACT + ((pixels - EXACT) / (all - 2 * EXACT)) * (range - 2 * EXACT);
  }

  #positionOf(top) {
    const range = this.#range;
    const all = this.end * this.rowHeight;
    let pixels;
    if (all <= range + 1 || top <= EXACT) pixels = top;
    else if (range - top <= EXACT) pixels = all - (range - top);
    else pixels = EXACT + ((top - EXACT) / (range - 2 * EXACT)) * (all - 2 * EXACT);
    return Math.min(Math.max(pixels / this.rowHeight, 0), this.end);
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
      const small = Math.abs(moved) <= 2 * this.height && top > 0 && top < this.#range - 1;
      this.position = small
        ? Math.min(Math.max(this.position + moved / this.rowHeight, 0), this.end)
        : this.#positionOf(top);
      this.onmove?.();
      this.moving = true;
      clearTimeout(this.idle);
      this.idle = setTimeout(() => {
        this.moving = false;
        this.position = Math.min(this.position, this.end);
        this.#align();
      }, IDLE_MS);
    }
    this.redraw(); // to the side, too
  }

  #stretch() {
    const height = Math.min(this.total * this.rowHeight, MAX_HEIGHT);
    this.spacer.style.height = `${Math.max(height - this.height, 0)}px`;
  }

  #resized() {
    this.#stretch();
    this.onresize?.();
    this.goTo(this.position);
  }
}
