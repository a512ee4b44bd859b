/**
 * Elements are made here and nowhere else: text goes in as text nodes, so nothing that a model or a file says can become markup.
 *
 *     h('button', { type: 'button', class: 'primary', onclick: send }, 'Send')
 *
 * A property that starts with `on` is a listener, `true` is an attribute without a value, `false`, null and undefined leave it out.
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) setProperty(element, name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function setProperty(element, name, value) {
  if (value === false || value === null || value === undefined) return;
  if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
  else element.setAttribute(name, value === true ? '' : value);
}

/** Sets the text only where it differs: an unchanged live region is not announced again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes `parent` hold exactly `children` in this order, moving as little as possible so that focus and scroll stay. */
export function arrange(parent, children) {
  children.forEach((child, place) => {
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
  });
  while (parent.children.length > children.length) parent.lastElementChild.remove();
}

/** Views by key, made when first needed and dropped when their key is gone. */
export class Keyed {
  #views = new Map();

  get(key) {
    return this.#views.get(key);
  }

  /** The views of `items` in order; `make(item)` makes a missing one. */
  match(items, keyOf, make) {
    const kept = new Map(items.map((item) => [keyOf(item), this.#views.get(keyOf(item)) ?? make(item)]));
    this.#views = kept;
    return [...kept.values()];
  }
}
