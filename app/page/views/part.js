/** One part of a message. Each kind of part that is worth showing has a view with an `element` and `update(part)`. */
import { h, setText } from '../dom.js';
import { LongText } from '../longtext.js';
import { Markdown } from '../markdown.js';
import { count, duration, errorText, revealed } from '../text.js';
import { ToolView } from './tool.js';

/** The view for a new part, null for those that say nothing to people. */
export function partView(part, role) {
  if (part.type === 'text' && (part.synthetic || part.ignored)) return null;
  if (part.type === 'text') return role === 'user' ? new PlainText() : new Answer();
  const make = VIEWS[part.type];
  return make ? make() : null;
}

const VIEWS = {
  reasoning: () => new Reasoning(),
  tool: () => new ToolView(),
  file: () => new Note(fileNote),
  patch: () => new Note(({ files }) => `${count(files.length, 'file')} changed`),
  retry: () => new Note(({ attempt, error }) => `Attempt ${attempt} failed: ${errorText(error)}`),
  compaction: () => new Note(() => 'The conversation was compacted here'),
  subtask: () => new Note(({ agent, description }) => `Task for ${agent}: ${description}`),
  agent: () => new Note(({ name }) => `@${name}`),
};

function fileNote({ filename, url, mime }) {
  return `${revealed(filename ?? url.slice(0, 80))} (${mime})`;
}

class Answer {
  #markdown = new Markdown(h('div', { class: 'markdown' }));
  element = this.#markdown.element;

  update(part) {
    this.#markdown.update(part.text);
  }
}

/** What the user wrote, as it was written. */
class PlainText {
  element = h('div', { class: 'plain-text', dir: 'auto' });
  #text = new LongText(this.element);

  update(part) {
    this.#text.update(part.text);
  }
}

class Reasoning {
  #title = h('summary');
  #markdown = new Markdown(h('div', { class: 'markdown' }));
  element = h('details', { class: 'reasoning' }, this.#title, this.#markdown.element);

  update({ text, time }) {
    setText(this.#title, time?.end ? `Thought for ${tookToThink(time.end - time.start)}` : 'Thinking…');
    this.#markdown.update(text);
    this.element.hidden = !text;
  }
}

function tookToThink(milliseconds) {
  return milliseconds < 1000 ? 'a moment' : duration(milliseconds);
}

class Note {
  element = h('p', { class: 'part-note' });

  constructor(say) {
    this.say = say;
  }

  update(part) {
    setText(this.element, this.say(part));
  }
}
