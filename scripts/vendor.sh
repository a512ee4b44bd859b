#!/usr/bin/env bash
# vendor.sh: copy the page's libraries, at the versions that app/page/vendor/package.json names, with their licences. Needs npm.
set -euo pipefail
vendor=$(cd "$(dirname "$0")/../app/page/vendor" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$vendor/package.json" "$work"
(cd "$work" && npm install --silent --no-fund --no-audit --ignore-scripts)

# take PACKAGE FILE AS: one file, and the package's licence beside it.
take() {
  cp "$work/node_modules/$1/$2" "$vendor/$3"
  cp "$work/node_modules/$1/LICENSE" "$vendor/${3%.*}.LICENSE.txt"
}
take markdown-it dist/browser/markdown-it.esm.min.mjs markdown-it.mjs
take dompurify dist/purify.es.mjs dompurify.mjs
take @highlightjs/cdn-assets es/highlight.min.js highlight.js
take diff dist/diff.min.js diff.js
