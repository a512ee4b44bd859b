/** HTML made from what a model wrote, as nodes: nothing in it can run or load anything, whatever made the HTML. */
import DOMPurify from './vendor/dompurify.mjs';

const OPTIONS = {
  ALLOWED_TAGS: [
    ...['h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'p', 'hr', 'br', 'blockquote', 'ul', 'ol', 'li', 'pre', 'code', 'div', 'span'],
    ...['table', 'thead', 'tbody', 'tr', 'th', 'td', 'strong', 'em', 's', 'a'],
  ],
  ALLOWED_ATTR: ['href', 'title', 'target', 'rel', 'class', 'dir', 'start', 'tabindex'],
  ALLOWED_URI_REGEXP: /^https?:\/\//i,
  ADD_URI_SAFE_ATTR: ['target', 'rel', 'dir', 'start', 'tabindex'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

export function sanitized(html) {
  return DOMPurify.sanitize(html, OPTIONS);
}
