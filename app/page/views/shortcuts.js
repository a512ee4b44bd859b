/** The keyboard: what each key does, and the dialog that says so. Single letters can be turned off, as some speak their input. */
import { h } from '../dom.js';
import { showDialog } from './dialog.js';

const SETTING = 'opensession.letters';

export class Shortcuts {
  /** `keys`: `{key, shown, does, run}`; `others`: `{shown, does}`, what is handled where it belongs. */
  constructor(keys, others) {
    this.keys = keys;
    this.others = others;
    document.addEventListener('keydown', (event) => this.#pressed(event));
  }

  #pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return;
    if (document.querySelector('dialog[open], [popover]:popover-open') || localStorage.getItem(SETTING) === 'off') return;
    const found = this.keys.find(({ key }) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found.run();
  }

  async help() {
    const rows = [...this.keys.filter(({ does }) => does), ...this.others];
    const letters = h('input', { type: 'checkbox', checked: localStorage.getItem(SETTING) !== 'off' });
    letters.addEventListener('change', () => localStorage.setItem(SETTING, letters.checked ? 'on' : 'off'));
    const list = h(
      'dl',
      { class: 'keys' },
      rows.map(({ key, shown, does }) => h('div', {}, h('dt', {}, h('kbd', {}, shown ?? key)), h('dd', {}, does))),
    );
    await showDialog({
      title: 'Keyboard shortcuts',
      body: [list, h('label', { class: 'option' }, letters, 'Single keys work outside text fields')],
    });
  }
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
