/** Where one writes: the prompt, the agent and the model that answer it, send and stop. */
import { h } from '../dom.js';
import { Suggestions } from './suggestions.js';

export class Composer {
  #files = new Map();

  /** `actions`: `{send({text, files, agent, model}), stop(), run(name, text), commands(), findFiles(text)}`; `send` says whether
   * the server has got the prompt. */
  constructor(actions) {
    this.actions = actions;
    this.input = h('textarea', {
      id: 'prompt',
      rows: '1',
      placeholder: 'Ask for anything. Type / for commands, @ for files',
      'aria-label': 'Prompt',
      dir: 'auto',
      onkeydown: (event) => this.#key(event),
      oninput: () => this.#grow(),
    });
    this.suggestions = new Suggestions(this.input, {
      commands: actions.commands,
      findFiles: actions.findFiles,
      picked: (item) => this.#picked(item),
    });
    this.agent = h('select', { 'aria-label': 'Agent' });
    this.model = h('select', { 'aria-label': 'Model' });
    this.stop = h('button', { type: 'button', class: 'danger', hidden: true, onclick: actions.stop }, 'Stop');
    this.sendButton = h('button', { type: 'button', class: 'primary', onclick: () => this.#send() }, 'Send');
    this.element = h(
      'div',
      { class: 'composer' },
      this.suggestions.element,
      h(
        'div',
        { class: 'composer-box' },
        this.input,
        h('div', { class: 'composer-row' }, this.agent, this.model, h('span', { class: 'gap' }), this.stop, this.sendButton),
      ),
    );
  }

  offer(agents, providers) {
    const own = agents.filter((agent) => agent.mode !== 'subagent' && !agent.hidden);
    this.agent.replaceChildren(...own.map(({ name, description }) => h('option', { value: name, title: description }, name)));
    this.model.replaceChildren(
      ...providers.map(({ id, name, models }) =>
        h(
          'optgroup',
          { label: name },
          Object.values(models).map((model) => h('option', { value: `${id}/${model.id}` }, model.name)),
        ),
      ),
    );
  }

  /** `model`: `{providerID, modelID}`. What is not offered (any more) leaves the choice as it is. */
  choose({ agent, model }) {
    select(this.agent, agent);
    if (model) select(this.model, `${model.providerID}/${model.modelID}`);
  }

  chosenModel() {
    const [providerID, ...rest] = this.model.value.split('/');
    return providerID ? { providerID, modelID: rest.join('/') } : undefined;
  }

  put(text) {
    this.input.value = text;
    this.#grow();
    this.input.focus();
  }

  showBusy(busy) {
    this.stop.hidden = !busy;
    this.sendButton.textContent = busy ? 'Queue' : 'Send';
  }

  #key(event) {
    if (event.isComposing || this.suggestions.key(event)) return;
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      this.#send();
    } else if (event.key === 'Escape' && !this.stop.hidden) {
      this.actions.stop();
    }
  }

  async #send() {
    const text = this.input.value;
    if (!text.trim() || this.sendButton.disabled) return;
    this.sendButton.disabled = true;
    const sent = await this.#run(text).finally(() => (this.sendButton.disabled = false));
    if (!sent || this.input.value !== text) return;
    this.put('');
    this.#files.clear();
  }

  #run(text) {
    const [, name, rest] = /^\/(\S+)(?:\s+([\s\S]*))?$/.exec(text.trim()) ?? [];
    const chosen = { agent: this.agent.value || undefined, model: this.chosenModel() };
    if (name && this.actions.commands().some((command) => command.name === name))
      return this.actions.run(name, rest ?? '', chosen);
    return this.actions.send({ text, files: this.#mentioned(text), ...chosen });
  }

  #mentioned(text) {
    return [...this.#files.values()].filter((path) => text.includes(`@${path}`));
  }

  #picked({ name, path, start, end }) {
    if (name) return this.put(`/${name} `);
    this.#files.set(path, path);
    const { value } = this.input;
    this.put(`${value.slice(0, start)}@${path} ${value.slice(end)}`);
    this.input.selectionStart = this.input.selectionEnd = start + path.length + 2;
  }

  /** Browsers that know `field-sizing` need no help. */
  #grow() {
    if (CSS.supports('field-sizing', 'content')) return;
    this.input.style.height = 'auto';
    this.input.style.height = `${this.input.scrollHeight}px`;
  }
}

function select(field, value) {
  if ([...field.options].some((option) => option.value === value)) field.value = value;
}
