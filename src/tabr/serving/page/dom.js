// Elements of the page, made without HTML text: what a row holds cannot become markup.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

function dress(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value === false || value == null) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }
  return element;
}

/** Make an element; functions listen, names with -- are variables of its style. */
export function make(name, attributes = {}, ...children) {
  const element = dress(document.createElement(name), attributes);
  element.append(...children.filter((child) => child != null && child !== false));
  return element;
}

/** Write a text, or hide its place if there is none. */
export function say(element, text) {
  element.textContent = text ?? "";
  element.hidden = !text;
}

/** Open a dialog; resolves to the value of the button that closed it, or "". */
export function open(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/**
 * An SVG that is drawn again and again. Marks have keys: one that stays is changed, and
 * so moves to its new place by CSS; one that is not drawn again goes.
 */
export class Canvas {
  constructor(svg) {
    this.svg = svg;
    this.marks = new Map();
    this.layers = ["back", "middle", "front"].map((name) =>
      svg.appendChild(dress(document.createElementNS(SVG, "g"), { class: name })));
  }

  begin(width, height) {
    dress(this.svg, { viewBox: `0 0 ${width} ${height}`, width, height });
    this.drawn = new Set();
  }

  put(layer, key, name, attributes, text) {
    let mark = this.marks.get(key);
    if (!mark) {
      mark = this.layers[layer].appendChild(document.createElementNS(SVG, name));
      this.marks.set(key, mark);
    }
    this.drawn.add(key);
    dress(mark, attributes);
    if (text != null && mark.textContent !== text) mark.textContent = text;
    return mark;
  }

  text(key, x, y, text, className = "") {
    this.put(2, key, "text", { x, y, class: className }, text);
  }

  box(layer, key, x, y, width, height, className, round = 0) {
    this.put(layer, key, "rect", { x, y, width, height, rx: round, class: className });
  }

  path(key, d, className) {
    this.put(2, key, "path", { d, class: className });
  }

  /** A dot of a neighbour; its title is what a pointer is told. */
  dot(key, x, y, radius, className, share, id, title) {
    const dot = this.put(1, key, "circle", {
      cx: x.toFixed(1), cy: y.toFixed(1), r: radius.toFixed(1), class: `dot ${className}`,
      "--share": share, "data-id": id,
    });
    if (!dot.firstChild) dot.append(document.createElementNS(SVG, "title"));
    if (dot.firstChild.textContent !== title) dot.firstChild.textContent = title;
  }

  end() {
    for (const [key, mark] of this.marks) {
      if (this.drawn.has(key)) continue;
      mark.remove();
      this.marks.delete(key);
    }
  }
}
