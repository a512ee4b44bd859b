/** What waits for the user: permissions and questions, one dialog at a time. */
import { diffView } from '../diff.js';
import { h } from '../dom.js';
import { asText, count, errorText, localPath, revealed } from '../text.js';
import { notify, showDialog } from './dialog.js';
import { commandView, subjectOf } from './tool.js';

const TITLES = {
  bash: 'Run this command?',
  edit: 'Change this file?',
  webfetch: 'Fetch this address?',
  external_directory: 'Access files outside the project?',
  doom_loop: 'The model repeats the same call. Continue?',
  task: 'Start a subagent?',
};

/** For those who have keys. */
const escHint = () => h('span', { class: 'key-hint' }, ' (Esc)');

export class Asks {
  #shown = null;
  #later = new Set();

  /** `button` shows what was put off; it opens the dialog again. */
  constructor(store, api, button) {
    this.store = store;
    this.api = api;
    this.button = button;
    button.addEventListener('click', () => {
      this.#later.clear();
      this.update();
    });
  }

  /** What the open session and its subagents wait for. */
  get waiting() {
    const asks = [...this.store.permissions.values(), ...this.store.questions.values()];
    return asks.filter((ask) => this.store.isBelowOpen(ask.sessionID));
  }

  update() {
    const { waiting } = this;
    this.button.hidden = waiting.length === 0;
    this.button.textContent = `Answer ${count(waiting.length, 'request')}`;
    if (this.#shown && !waiting.some((ask) => ask.id === this.#shown.id)) this.#shown.closed.abort();
    const next = waiting.find((ask) => !this.#later.has(ask.id));
    if (next && !this.#shown) this.#show(next);
  }

  async #show(ask) {
    this.#shown = { id: ask.id, closed: new AbortController() };
    try {
      await (ask.questions ? this.#question(ask, this.#shown.closed.signal) : this.#permission(ask, this.#shown.closed.signal));
    } catch (error) {
      this.#later.add(ask.id);
      notify(errorText(error));
    }
    this.#shown = null;
    this.update();
  }

  // Permissions

  async #permission(ask, closed) {
    const message = h('input', {
      type: 'text',
      class: 'text-field',
      placeholder: 'What to do instead (optional)',
      'data-enter': 'reject',
      dir: 'auto',
    });
    const body = [...(await this.#subject(ask)), always(ask), h('label', { class: 'reject-with' }, 'If you reject it', message)];
    if (closed.aborted) return;
    const value = await showDialog({
      title: TITLES[ask.permission] ?? `Allow ${ask.permission}?`,
      body,
      wide: Boolean(ask.metadata.diff),
      guarded: true,
      closed,
      buttons: [
        { label: 'Allow once', value: 'once', kind: 'primary' },
        { label: 'Allow always', value: 'always' },
        { label: ['Reject', escHint()], value: 'reject', kind: 'danger' },
        { label: 'Later', value: 'later', kind: 'quiet' },
      ],
    });
    if (closed.aborted) return;
    if (value === 'later') this.#putOff(ask);
    else
      await this.#answer(ask, this.store.permissions, () =>
        this.api.replyPermission(
          ask.id,
          value ?? 'reject',
          value === 'always' || value === 'once' ? undefined : message.value.trim() || undefined,
        ),
      );
  }

  /** The difference, or the tool call, and what of it is asked for. */
  async #subject(ask) {
    if (ask.metadata.diff) return [diffView(asText(ask.metadata.diff))];
    const call = await this.#call(ask);
    if (ask.permission === 'bash') return [commandView(asText(call?.state.input.command) || ask.patterns.join('\n'))];
    return [call && callView(call), patternList(ask)];
  }

  /** The part of the tool call that asks; undefined where none does. */
  async #call({ sessionID, tool }) {
    if (!tool) return undefined;
    const message = this.store.message(tool.messageID) ?? (await this.api.message(sessionID, tool.messageID));
    return message.parts.find((part) => part.callID === tool.callID);
  }

  // Questions

  async #question(ask, closed) {
    const fields = ask.questions.map(questionField);
    const value = await showDialog({
      title: ask.questions.length === 1 ? ask.questions[0].header || 'A question' : count(ask.questions.length, 'question'),
      body: fields.map((field) => field.element),
      guarded: true,
      closed,
      buttons: [
        { label: 'Answer', value: 'answer', kind: 'primary' },
        { label: ['Dismiss', escHint()], value: null, kind: 'danger' },
        { label: 'Later', value: 'later', kind: 'quiet' },
      ],
    });
    if (closed.aborted) return;
    if (value === 'later') this.#putOff(ask);
    else
      await this.#answer(ask, this.store.questions, () =>
        value === 'answer'
          ? this.api.replyQuestion(
              ask.id,
              fields.map((field) => field.answer()),
            )
          : this.api.rejectQuestion(ask.id),
      );
  }

  #putOff(ask) {
    this.#later.add(ask.id);
  }

  /** Answered here, so it waits no more, whether or not its event is here already; another client may have been faster. */
  async #answer(ask, asks, reply) {
    await reply().catch((error) => {
      if (error.status !== 404) throw error;
    });
    asks.delete(ask.id);
  }
}

function callView(part) {
  if (part.tool === 'bash') return commandView(asText(part.state.input.command));
  return h('p', { class: 'call' }, h('strong', {}, part.tool), ' ', h('bdi', {}, revealed(subjectOf(part))));
}

function patternList({ patterns }) {
  return h(
    'ul',
    { class: 'patterns' },
    patterns.map((pattern) => h('li', {}, h('bdi', {}, revealed(localPath(pattern))))),
  );
}

function always({ always }) {
  if (!always.length) return null;
  const everything = always.includes('*');
  const patterns = always.filter((pattern) => pattern !== '*').map((pattern) => [h('code', {}, revealed(pattern)), ' ']);
  return h(
    'p',
    { class: 'hint' },
    'Always would allow ',
    everything ? 'all of this kind' : patterns,
    ' in this project from now on.',
  );
}

let fieldNumber = 0;

function questionField({ question, header, options, multiple, custom }) {
  const name = `question-${++fieldNumber}`;
  const choices = options.map(({ label, description }, place) => {
    const input = h('input', { type: multiple ? 'checkbox' : 'radio', name, value: label, autofocus: place === 0 });
    return {
      input,
      element: h(
        'label',
        { class: 'option' },
        input,
        h('span', {}, h('strong', { dir: 'auto' }, label), h('span', { class: 'hint', dir: 'auto' }, description)),
      ),
    };
  });
  const own =
    custom === false
      ? null
      : h('input', {
          type: 'text',
          class: 'text-field',
          placeholder: 'Your own answer',
          'aria-label': `Your own answer: ${header}`,
          dir: 'auto',
        });
  own?.addEventListener('input', () => {
    if (!multiple && own.value) for (const { input } of choices) input.checked = false;
  });
  for (const { input } of choices) input.addEventListener('change', () => !multiple && own && (own.value = ''));
  return {
    element: h(
      'fieldset',
      {},
      h('legend', { dir: 'auto' }, question),
      choices.map(({ element }) => element),
      own,
    ),
    answer: () => [
      ...choices.filter(({ input }) => input.checked).map(({ input }) => input.value),
      ...(own?.value.trim() ? [own.value.trim()] : []),
    ],
  };
}
