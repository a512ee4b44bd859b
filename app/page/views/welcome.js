/** What is shown where there are no messages yet. */
import { h } from '../dom.js';

/** `put(text)` writes an example into the prompt. */
export function welcome(put) {
  const examples = ['help', 'list files', 'write notes.md: # Notes', 'run ls -la', 'think'];
  const buttons = examples.map((text) => h('button', { type: 'button', class: 'example', onclick: () => put(text) }, text));
  const scripted = h(
    'div',
    { class: 'scripted' },
    h('p', {}, 'No model is connected, so a script answers by rule. It understands:'),
    h('div', { class: 'examples' }, buttons),
  );
  return h('div', { class: 'welcome' }, h('h2', {}, 'What shall be done?'), h('p', { id: 'where', class: 'hint' }), scripted);
}
