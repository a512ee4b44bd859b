#!/usr/bin/env bash
# Let the model review what a branch changes, for example in CI:  review-diff.sh origin/main
#
#   exit 0   it may be merged        exit 1   something must change        exit 2   there is no verdict (no server, no answer …)
#
# The server must run in this checkout: OPENSESSION_URL names it, OPENSESSION_TOKEN is a token of it, where it wants a login.
# Needs git, curl and jq. A verdict is an opinion: whoever wrote the diff can try to talk the model round.
set -euo pipefail
trap 'exit 2' ERR

base=${1:-origin/main}
url=${OPENSESSION_URL:-http://127.0.0.1:4096}
login=()
if [ -n "${OPENSESSION_TOKEN:-}" ]; then login=(-H "Authorization: Bearer $OPENSESSION_TOKEN"); fi

call() { # METHOD PATH, the body on standard input
  curl -sS --fail-with-body -X "$1" "$url$2" "${login[@]}" -H 'Content-Type: application/json' --data-binary @-
}

changes=$(git diff "$base...HEAD")
if [ -z "$changes" ]; then
  echo "Nothing has changed since $base."
  exit 0
fi

# It may look around in the project, and nothing else.
rules='[["*", "deny"], ["read", "allow"], ["grep", "allow"], ["glob", "allow"], ["list", "allow"]]'
session=$(jq -n --argjson rules "$rules" \
  '{title: "Review", permission: [$rules[] | {permission: .[0], pattern: "*", action: .[1]}]}' | call POST /session | jq -r .id)
trap 'call DELETE "/session/$session" </dev/null >/dev/null' EXIT

task='Review the diff below: look for mistakes, missing tests and unclear code, and read the files around it where that helps.
Be brief and name file and line. End with one line: "VERDICT: PASS", or "VERDICT: FAIL" if something must change before it is merged.'
answer=$(printf '%s' "$changes" | jq -Rs --arg task "$task" '{parts: [{type: "text", text: ($task + "\n\n" + .)}]}' |
  call POST "/session/$session/message")

failure=$(jq -r '.info.error // empty | .data.message // .name' <<<"$answer")
if [ -n "$failure" ]; then
  echo "The review failed: $failure" >&2
  exit 2
fi
review=$(jq -r '[.parts[] | select(.type == "text") | .text] | join("\n")' <<<"$answer")
echo "$review"
case $(grep -oE 'VERDICT: (PASS|FAIL)' <<<"$review" | tail -n 1) in
  *PASS) exit 0 ;;
  *FAIL) exit 1 ;;
  *) echo "The review has no verdict." >&2 && exit 2 ;;
esac
