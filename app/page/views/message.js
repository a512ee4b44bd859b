/** One message: its parts in order, what went wrong, and what can be done with it. */
import { arrange, h, Keyed, setText } from '../dom.js';
import { dollars, duration, errorText, shortNumber } from '../text.js';
import { partView } from './part.js';

/** What a message says, as it was written. */
export function textOf({ parts }) {
  return parts
    .filter((part) => part.type === 'text' && !part.synthetic && !part.ignored)
    .map((part) => part.text)
    .join('\n\n');
}

const hasEnded = (info) => info.role === 'user' || Boolean(info.time.completed || info.error);

export class MessageView {
  #parts = new Keyed();
  #body = h('div', { class: 'parts' });
  #error = h('p', { class: 'error', role: 'alert', hidden: true });
  #foot = h('footer');

  /** `actions`: `{label, title, shortcut, run(message)}`, none where nothing can be done. */
  constructor(message, actions) {
    this.role = message.info.role;
    this.message = message;
    const buttons = actions.map(({ label, title, run }) =>
      h('button', { type: 'button', class: 'quiet', title, onclick: () => run(this.message) }, label),
    );
    const tools = buttons.length > 0 && h('div', { class: 'actions' }, buttons);
    const name = this.role === 'user' ? 'You' : 'Answer';
    this.element = h(
      'article',
      { class: `message ${this.role}`, id: message.info.id, tabindex: '-1', 'aria-label': name },
      this.#body,
      this.#error,
      this.#foot,
      tools,
    );
  }

  update(message) {
    this.message = message;
    const views = this.#parts.match(
      message.parts,
      (part) => part.id,
      (part) => ({ shown: partView(part, this.role) }),
    );
    message.parts.forEach((part, place) => views[place].shown?.update(part));
    arrange(
      this.#body,
      views.filter(({ shown }) => shown).map(({ shown }) => shown.element),
    );
    this.#status(message);
  }

  #status({ info, parts }) {
    this.element.setAttribute('aria-busy', String(!hasEnded(info)));
    this.element.classList.toggle('summary', Boolean(info.summary) && this.role === 'assistant');
    this.#error.hidden = !info.error;
    this.#error.classList.toggle('stopped', info.error?.name === 'MessageAbortedError');
    if (info.error) setText(this.#error, errorText(info.error));
    setText(this.#foot, footOf(info));
    this.element.classList.toggle('empty', parts.length > 0 && !this.#body.children.length && !info.error);
  }
}

/** The model, time and price of an answer, at the end of its last step. */
function footOf(info) {
  if (info.role === 'user' || !info.time.completed || info.finish === 'tool-calls') return '';
  const { input, output, cache } = info.tokens;
  const took = duration(info.time.completed - info.time.created);
  const read = input + cache.read + cache.write;
  const tokens = read > 0 && `${shortNumber(read)} → ${shortNumber(output)} tokens`;
  return [info.modelID, took, tokens, info.cost > 0 ? dollars(info.cost) : ''].filter(Boolean).join(' · ');
}
