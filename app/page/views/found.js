/** The messages that a search found: where the words are in them, and the way there. */
import { arrange, h, setText } from '../dom.js';
import { ago, count, titleOf } from '../text.js';

export class FoundMessages {
  #list = h('ul');
  #heading = h('h2', { role: 'status' });
  element = h('section', { class: 'found', 'aria-label': 'In messages', hidden: true }, this.#heading, this.#list);

  /** `found`: the answer of the search, null where nothing was searched for. */
  show(found) {
    const results = found?.results ?? [];
    this.element.hidden = found === null;
    setText(this.#heading, results.length ? `In ${count(results.length, 'message')}${found.next ? ' or more' : ''}` : 'In no message');
    arrange(this.#list, results.map(item));
  }
}

function item({ sessionID, messageID, role, title, time, snippet, ranges }) {
  return h(
    'li',
    {},
    h(
      'a',
      { href: `#${sessionID}/${messageID}` },
      h('span', { class: 'session-title', dir: 'auto' }, titleOf({ title })),
      h('span', { class: 'snippet', dir: 'auto' }, marked(snippet, ranges)),
      h('span', { class: 'session-note' }, h('time', {}, ago(time)), h('span', {}, role === 'user' ? 'You' : 'Answer')),
    ),
  );
}

/** The ranges are in order, and count as JavaScript does. */
function marked(text, ranges) {
  const pieces = ranges.map(([start, end], place) => [
    text.slice(ranges[place - 1]?.[1] ?? 0, start),
    h('mark', {}, text.slice(start, end)),
  ]);
  return [pieces, text.slice(ranges.at(-1)?.[1] ?? 0)];
}
