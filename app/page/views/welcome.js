/** What is shown where there are no messages yet. */
import { h } from '../dom.js';

/** What the scripted provider understands, and what is to be seen by it. */
const EXAMPLES = [
  ['help', 'all that the script understands'],
  ['run ls -la', 'a tool and its output'],
  ['write notes.md: # Notes', 'a changed file, which “Revert” takes back'],
  ['read /etc/hosts', 'a permission: it lies outside the project'],
  ['ask Which colour?: Red, Blue', 'a question to you'],
  ['think', 'reasoning, folded'],
];

/** `put(text)` writes an example into the prompt. */
export function welcome(put) {
  const examples = EXAMPLES.map(([text, shows]) => [
    h('dt', {}, h('button', { type: 'button', class: 'example', onclick: () => put(text) }, text)),
    h('dd', {}, shows),
  ]);
  const scripted = h(
    'div',
    { class: 'scripted' },
    h('p', {}, 'No model is connected, so a script answers. Try these:'),
    h('dl', { class: 'examples' }, examples),
  );
  return h('div', { class: 'welcome' }, h('h2', {}, 'What would you like to do?'), h('p', { id: 'where', class: 'hint' }), scripted);
}
