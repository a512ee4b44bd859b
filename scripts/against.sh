#!/usr/bin/env bash
# against.sh conform|bench [ARGS…]: run the shared scenarios or the benchmark against a fresh server, workspace and data directory.
set -euo pipefail
cd "$(dirname "$0")/.."
what=$1; shift
shared=${SHARED:-../shared}/conform
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
if [ ! -f "$shared/conform.py" ]; then
  echo "The scenarios were not found in $shared: set SHARED to the directory that holds conform/." >&2
  exit 1
fi
shared=$(realpath "$shared")

free_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
answers() { "$python" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=2)' "$1" 2>/dev/null; }
await() {
  for _ in $(seq 150); do
    if answers "$1"; then return; fi
    sleep 0.2
  done
  echo "No answer from $1:" >&2; tail -n 40 "$2" >&2; exit 1
}

# With --only, the scenarios left out are no disagreement.
expected_of_those_run() {
  "$python" -c 'import json, sys; all, run = (json.load(open(f)) for f in sys.argv[1:]); print(json.dumps({n: all[n] for n in all if n in run}))' \
    "$shared/expected.json" "$tmp/facts.json"
}

tmp=$(mktemp -d)
started=()
finish() { kill "${started[@]}" 2>/dev/null || true; wait "${started[@]}" 2>/dev/null || true; rm -rf "$tmp"; }
trap finish EXIT

llm=http://127.0.0.1:$(free_port)
"$python" "$shared/fakellm.py" "${llm##*:}" >"$tmp/llm.log" 2>&1 & started+=($!)
await "$llm/log" "$tmp/llm.log"

base=http://127.0.0.1:$(free_port)
"$shared/workspace.sh" "$tmp/ws" "$llm"
(cd "$tmp/ws" && exec env OPENSESSION_DATA_DIR="$tmp/data" "$(dirname "$python")/opensession" serve --port "${base##*:}") >"$tmp/server.log" 2>&1 &
server=$!; started+=("$server")
await "$base/global/health" "$tmp/server.log"

case $what in
  conform)
    "$python" "$shared/conform.py" run "$base" --dir "$tmp/ws" --llm "$llm" "$@" >"$tmp/facts.json"
    expected_of_those_run >"$tmp/expected.json"
    "$python" "$shared/conform.py" diff "$tmp/expected.json" "$tmp/facts.json" ;;
  bench) "$python" "$shared/bench.py" "$base" --pid "$server" "$@" ;;
  *) echo "usage: against.sh conform|bench [ARGS…]" >&2; exit 2 ;;
esac
