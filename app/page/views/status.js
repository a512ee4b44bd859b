/** The lines above the prompt: what the session is doing, the countdown to a retry, a revert in force, that files have no undo, what
 * waits for an answer. */
import { h, setText } from '../dom.js';
import { duration } from '../text.js';

const TICK_MS = 250;

export class StatusBar {
  #status = { type: 'idle' };
  #timer = null;
  #spinner = h('span', { class: 'spinner', 'aria-hidden': 'true', hidden: true });
  /** What is announced, and beside it the seconds, which would be announced again and again. */
  #text = h('span', { role: 'status' });
  #seconds = h('span', { class: 'seconds', 'aria-hidden': 'true' });
  #reverted = h('span');
  #noUndo = h('p', { class: 'hint no-undo', hidden: true });

  /** `actions`: `{unrevert(), showReverted()}`. */
  constructor(actions) {
    this.asks = h('button', { type: 'button', class: 'attention', hidden: true });
    this.revert = h(
      'div',
      { class: 'banner', hidden: true },
      this.#reverted,
      h('button', { type: 'button', class: 'quiet', onclick: actions.showReverted }, 'Show files'),
      h('button', { type: 'button', onclick: actions.unrevert, id: 'unrevert' }, 'Undo revert'),
    );
    this.element = h(
      'div',
      { class: 'status' },
      this.revert,
      this.#noUndo,
      h('div', { class: 'status-line' }, this.#spinner, this.#text, this.#seconds, this.asks),
    );
  }

  /** `waits`: it goes on when the user has answered. */
  show(status, waits) {
    this.#status = waits ? { type: 'asks' } : status;
    const { type } = this.#status;
    this.#spinner.hidden = type !== 'busy' && type !== 'retry';
    this.element.dataset.status = type;
    setText(this.#text, TEXTS[type](status));
    clearInterval(this.#timer);
    if (type === 'busy' || type === 'retry') this.#timer = setInterval(() => this.#tick(), TICK_MS);
    this.#tick();
  }

  showRevert(text) {
    this.revert.hidden = text === null;
    setText(this.#reverted, text ?? '');
  }

  /** `reason`: why changes of files cannot be reverted. */
  showNoUndo(reason) {
    this.#noUndo.hidden = !reason;
    setText(this.#noUndo, reason ? noUndoText(reason) : '');
  }

  #tick() {
    const { type, next, since } = this.#status;
    if (type === 'retry') setText(this.#seconds, `next try in ${Math.max(0, Math.ceil((next - Date.now()) / 1000))} s`);
    else
      setText(
        this.#seconds,
        type === 'busy' && since ? duration(Math.floor((Date.now() - since) / 1000) * 1000).replace('.0', '') : '',
      );
  }
}

export const noUndoText = (reason) => `No undo here: ${reason}. A revert leaves files as they are.`;

const TEXTS = {
  idle: () => '',
  busy: () => 'Working…',
  asks: () => 'Waiting for your answer',
  retry: ({ attempt, message }) => `Attempt ${attempt} failed: ${message}`,
};
