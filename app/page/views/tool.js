/** A tool call: what is called with what, its output while it runs, its difference and its errors when it changed files. */
import { diffView, fileDiffView } from '../diff.js';
import { h, setText } from '../dom.js';
import { LongText } from '../longtext.js';
import { asText, count, duration, localPath, revealed } from '../text.js';

/** Calls whose result is what one wants to see; those of others are folded once they are done. */
const SHOWN = new Set(['bash', 'edit', 'write', 'multiedit', 'apply_patch', 'question', 'task']);
const LONG_DIFF = 60;
const MAX_PROBLEMS = 100;
const ERROR = 1;

/** What a call is about, in one line. */
export function subjectOf({ tool, state }) {
  const { input = {} } = state;
  if (tool === 'bash') return asText(input.command);
  const about = input.filePath ?? input.pattern ?? input.path ?? input.url ?? input.description ?? input.name ?? state.title;
  return typeof about === 'string' ? localPath(about) : '';
}

export function diffOf({ state }) {
  return asText(state.metadata?.diff);
}

/** What language servers find wrong with the files that a call has changed, and with others: `place` and `text` of each. */
function problemsOf({ metadata }) {
  const files = Object.entries(metadata?.diagnostics ?? {});
  const found = files.flatMap(([path, errors]) => (Array.isArray(errors) ? errors.map((error) => ({ ...error, path })) : []));
  const errors = found.filter(({ severity }) => severity === ERROR).slice(0, MAX_PROBLEMS);
  return errors.map(({ path, range, message }) => {
    const { line = 0, character = 0 } = range?.start ?? {};
    return { place: `${localPath(path)}:${line + 1}:${character + 1}`, text: String(message ?? '') };
  });
}

/** Formatters that have failed: the file is as it was written. */
function unformatted({ metadata }) {
  const failed = Object.entries(metadata?.formatErrors ?? {});
  return failed.map(([name, reason]) => ({ place: `Not formatted by ${name}`, text: String(reason) }));
}

export class ToolView {
  #part = null;
  #touched = false;
  #output = new LongText(h('code'));
  #diff = h('div');
  #input = h('div', { class: 'input' });
  #problems = h('ul', { class: 'problems', 'aria-label': 'Problems', hidden: true });

  constructor() {
    this.name = h('span', { class: 'name' });
    this.subject = h('bdi', { class: 'subject' });
    this.note = h('span', { class: 'note' });
    this.summary = h(
      'summary',
      { onclick: () => (this.#touched = true) },
      h('span', { class: 'mark', 'aria-hidden': 'true' }),
      h('span', { class: 'unseen' }, 'Tool '),
      this.name,
      this.subject,
      this.note,
    );
    this.pre = h('pre', { class: 'output', tabindex: '0', 'aria-label': 'Output' }, this.#output.element);
    this.element = h('details', { class: 'tool' }, this.summary, this.#input, this.#diff, this.pre, this.#problems);
  }

  update(part) {
    if (part === this.#part) return;
    const before = this.#part;
    this.#part = part;
    this.#head(part);
    if (before?.state.status !== part.state.status) this.#input.replaceChildren(...inputOf(part));
    this.#body(part, before);
    this.#report(part.state);
    if (!this.#touched) this.element.open = isOpen(part);
  }

  #head({ tool, state }) {
    this.element.dataset.status = state.status;
    setText(this.name, tool);
    setText(this.subject, revealed(subjectOf(this.#part)));
    setText(this.note, noteOf(state));
    this.note.classList.toggle('failed', Boolean(state.metadata?.exit));
  }

  #report(state) {
    const problems = [...problemsOf(state), ...unformatted(state)];
    this.#problems.hidden = problems.length === 0;
    const rows = problems.map(({ place, text }) => h('li', {}, h('bdi', { class: 'place' }, revealed(place)), revealed(text)));
    this.#problems.replaceChildren(...rows);
  }

  #body(part, before) {
    const atEnd = this.pre.scrollTop + this.pre.clientHeight >= this.pre.scrollHeight - 8;
    const diff = diffOf(part);
    if (diff !== (before ? diffOf(before) : '')) this.#diff.replaceChildren(...(diff ? [diffView(diff)] : []));
    const output = outputOf(part);
    this.#output.update(output);
    this.pre.hidden = !output;
    if (atEnd && part.state.status === 'running') this.pre.scrollTop = this.pre.scrollHeight;
  }
}

function isOpen(part) {
  const { status } = part.state;
  if (status === 'error') return true;
  if (!SHOWN.has(part.tool) || status === 'pending') return false;
  return diffOf(part).split('\n').length <= LONG_DIFF || problemsOf(part.state).length > 0;
}

function noteOf(state) {
  const exit = state.metadata?.exit;
  const took = state.time?.end ? duration(state.time.end - state.time.start) : '';
  if (state.status === 'error') return 'failed';
  const errors = problemsOf(state).length;
  const told = [exit && `exit ${exit}`, errors && count(errors, 'error'), took];
  if (state.status === 'completed') return told.filter(Boolean).join(' · ');
  return state.status === 'running' ? 'running…' : 'preparing…';
}

/** By what the model may continue a task; people have the link. */
const FOR_THE_MODEL = /\s*<task_metadata>[^<]*<\/task_metadata>\s*$/;

/** What the model is told of errors; people have the list. */
const ERRORS_FOR_THE_MODEL = /\n\nLSP errors detected [^\n]*\n<diagnostics [^]*$/;

/** While a command runs, its output is in the metadata. An edit's diff says more than its "done". */
function outputOf(part) {
  const { state } = part;
  const output = asText(state.metadata?.output);
  if (state.status === 'error') return [output, state.error].filter(Boolean).join('\n');
  if (state.status !== 'completed') return output;
  if (part.tool === 'task') return state.output.replace(FOR_THE_MODEL, '');
  return diffOf(part) || part.tool === 'question' ? '' : withoutErrors(state);
}

function withoutErrors(state) {
  return problemsOf(state).length ? state.output.replace(ERRORS_FOR_THE_MODEL, '') : state.output;
}

export function commandView(command) {
  return h('pre', { class: 'command' }, h('code', {}, revealed(command)));
}

/** What was asked, and the answers once there are some. */
function answersOf({ input = {}, metadata }) {
  const questions = Array.isArray(input.questions) ? input.questions : [];
  return h(
    'ul',
    { class: 'answers' },
    questions.map((each, place) =>
      h('li', { dir: 'auto' }, asText(each?.question), metadata?.answers && h('strong', {}, answerAt(metadata.answers[place]))),
    ),
  );
}

const answerAt = (answer) => (Array.isArray(answer) && answer.join(', ')) || 'no answer';

function inputOf({ tool, state }) {
  const { input = {} } = state;
  if (tool === 'bash') return [commandView(asText(input.command))];
  if (tool === 'question') return [answersOf(state)];
  if (tool === 'task') return [subagentLink(state), h('p', { dir: 'auto' }, asText(input.prompt))];
  if (tool === 'write') return [fileDiffView({ file: asText(input.filePath), before: '', after: asText(input.content) })];
  if (diffOf({ state }) || tool === 'todowrite') return [];
  return [
    h(
      'dl',
      {},
      Object.entries(input).map(([name, value]) => [h('dt', {}, name), h('dd', {}, revealed(short(value)))]),
    ),
  ];
}

function subagentLink(state) {
  const id = state.metadata?.sessionId;
  return id ? h('a', { href: `#${id}` }, 'Open the subagent’s session') : '';
}

function short(value) {
  const text = asText(value);
  return text.length > 2000 ? `${text.slice(0, 2000)}…` : text;
}
