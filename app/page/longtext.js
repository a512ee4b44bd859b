import { h } from './dom.js';

const PIECE = 6000;
const LONGEST_LINE = 20_000;

/** Long plain text in pieces, so that adding to it neither copies nor lays out the whole again. */
export class LongText {
  #text = '';

  constructor(element) {
    this.element = element;
  }

  update(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) {
      this.element.replaceChildren();
      this.#text = '';
    }
    let added = text.slice(this.#text.length);
    this.#text = text;
    while (added) added = this.#add(added);
  }

  /** Fills the last piece up to the next line's end; returns what is left over. */
  #add(added) {
    let piece = this.element.lastChild;
    if (!piece || piece.firstChild.length >= PIECE) {
      piece = h('span', { class: 'piece' }, document.createTextNode(''));
      this.element.append(piece);
    }
    const room = PIECE - piece.firstChild.length;
    const lineEnd = added.indexOf('\n', room);
    const cut = lineEnd < 0 || lineEnd > room + LONGEST_LINE ? Math.min(added.length, room + LONGEST_LINE) : lineEnd + 1;
    piece.firstChild.appendData(added.slice(0, cut));
    return added.slice(cut);
  }
}
