/** What belongs to a session beside its messages: how full the model's window is, what it cost, what is to do, what changed. */
import { fileDiffView } from '../diff.js';
import { h, setText } from '../dom.js';
import { count, dollars, revealed, shortNumber } from '../text.js';
import { showDialog } from './dialog.js';

/** `{used, limit, cost, input, output, cached}` in tokens and dollars, from the messages that are loaded. `used` is what the last
 * answer took of the window. */
export function usageOf(messages, limitOf) {
  const usage = { used: 0, limit: 0, cost: 0, input: 0, output: 0, cached: 0 };
  for (const { info, parts } of messages) {
    if (info.role !== 'assistant') continue;
    usage.cost += info.cost;
    for (const part of parts) if (part.type === 'step-finish') addTokens(usage, part.tokens);
    const used = totalOf(info.tokens);
    if (used > 0) Object.assign(usage, { used, limit: limitOf(info.providerID, info.modelID) });
  }
  return usage;
}

function addTokens(usage, { input, output, cache }) {
  usage.input += input + cache.write;
  usage.cached += cache.read;
  usage.output += output;
}

/** `output` includes the reasoning. */
const totalOf = ({ input, output, cache }) => input + output + cache.read + cache.write;

export class ContextPanel {
  #meter = h('progress', { max: '100', value: '0', 'aria-label': 'Share of the context window in use' });
  #share = h('p', { class: 'big' });
  #numbers = h('dl', { class: 'numbers' });
  #todoTitle = h('h2', {}, 'Todo');
  #todos = h('ul', { class: 'todos' });
  #noTodos = h('p', { class: 'hint' }, 'No to-dos yet.');
  #filesTitle = h('h2', {}, 'Changes');
  #files = h('ul', { class: 'files' });
  #noFiles = h('p', { class: 'hint' }, 'No files changed.');

  element = h(
    'div',
    { class: 'context-panel' },
    h('section', { 'aria-label': 'Usage' }, h('h2', {}, 'Context'), this.#share, this.#meter, this.#numbers),
    h('section', { 'aria-label': 'Todo' }, this.#todoTitle, this.#todos, this.#noTodos),
    h('section', { 'aria-label': 'Changed files' }, this.#filesTitle, this.#files, this.#noFiles),
  );

  /** `partial`: earlier messages are not loaded, so the sums are not of the whole session. */
  showUsage({ used, limit, cost, input, output, cached }, partial) {
    const percent = limit ? Math.min(100, (used / limit) * 100) : 0;
    this.#meter.value = percent;
    this.#meter.hidden = !limit;
    setText(this.#share, limit ? `${shortNumber(used)} of ${shortNumber(limit)} tokens` : `${shortNumber(used)} tokens`);
    const rows = [
      ['Window used', percent > 0 && `${percent.toFixed(percent < 10 ? 1 : 0)} %`],
      ['Input', input > 0 && shortNumber(input)],
      ['Cached input', cached > 0 && shortNumber(cached)],
      ['Output', output > 0 && shortNumber(output)],
      ['Cost', dollars(cost)],
    ].filter(([, value]) => value);
    this.#numbers.replaceChildren(...rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
    this.#numbers.title = partial ? 'Totals of the displayed messages' : '';
  }

  showTodos(todos) {
    const done = todos.filter((todo) => todo.status === 'completed').length;
    setText(this.#todoTitle, todos.length ? `Todo ${done}/${todos.length}` : 'Todo');
    this.#todos.replaceChildren(
      ...todos.map((todo) =>
        h(
          'li',
          { 'data-status': todo.status },
          h('span', { class: 'unseen' }, `${todo.status.replace('_', ' ')}: `),
          h('span', { dir: 'auto' }, todo.content),
        ),
      ),
    );
    this.#noTodos.hidden = todos.length > 0;
  }

  /** `reverted`: the changes that a revert has undone. */
  showFiles(diffs, reverted = false) {
    setText(this.#filesTitle, reverted ? 'Reverted changes' : 'Changes');
    this.#files.replaceChildren(...diffs.map((diff) => h('li', {}, fileButton(diff))));
    this.#noFiles.hidden = diffs.length > 0;
  }

  /** The panel in a few characters, for the button that opens it where there is no room for it. */
  brief({ used, limit, cost }, todos) {
    const left = todos.filter((todo) => todo.status !== 'completed' && todo.status !== 'cancelled').length;
    return (
      [limit ? `${Math.round((used / limit) * 100)} %` : '', cost > 0 ? dollars(cost) : '', left ? `${left} to do` : '']
        .filter(Boolean)
        .join(' · ') || 'Info'
    );
  }
}

function fileButton(diff) {
  const open = () => showDialog({ title: 'Changes', body: [fileDiffView(diff)], wide: true });
  return h(
    'button',
    { type: 'button', class: 'file-button', onclick: open },
    h('bdi', { class: 'path' }, revealed(diff.file)),
    h('span', { class: 'added', title: `${count(diff.additions, 'line')} added` }, ` +${diff.additions}`),
    h('span', { class: 'removed', title: `${count(diff.deletions, 'line')} removed` }, ` −${diff.deletions}`),
  );
}
