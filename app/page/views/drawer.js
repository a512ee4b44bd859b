/** A side panel that is a drawer where there is no room for it: opened by a button, closed by Esc or a click beside it. */
import { h } from '../dom.js';

export class Drawer {
  /** `beside`: what cannot be reached while the drawer is open. */
  constructor(panel, button, beside) {
    this.panel = panel;
    this.button = button;
    this.beside = beside;
    this.shade = h('div', { class: 'shade', hidden: true, onclick: () => this.close() });
    panel.after(this.shade);
    button.addEventListener('click', () => (this.isOpen ? this.close() : this.open()));
    document.addEventListener('keydown', (event) => this.#key(event));
    new ResizeObserver(() => button.offsetParent === null && this.close()).observe(button);
  }

  get isOpen() {
    return this.panel.classList.contains('open');
  }

  open() {
    this.#set(true);
    this.panel.querySelector('button:not([hidden]), input, a')?.focus();
  }

  /** Esc would stop an answer, too. */
  #key(event) {
    if (event.key !== 'Escape' || !this.isOpen) return;
    event.stopImmediatePropagation();
    this.close();
  }

  close() {
    if (!this.isOpen) return;
    this.#set(false);
    this.button.focus();
  }

  #set(open) {
    this.panel.classList.toggle('open', open);
    this.shade.hidden = !open;
    this.beside.inert = open;
    this.button.setAttribute('aria-expanded', String(open));
  }
}
