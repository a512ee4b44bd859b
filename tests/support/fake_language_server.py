"""A language server that does as its first word says. Every line with the word `wrong` is an error.

It appends what it was sent, method by method, to the file that FAKE_LOG names.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODE, *REST = [*sys.argv[1:], "plain"]
LOG = os.environ.get("FAKE_LOG")
ASKED: dict[str, str] = {}
"""Texts of which a server says something only when it is asked."""


def read() -> dict[str, Any] | None:
    length = 0
    while line := sys.stdin.buffer.readline():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        elif line == b"\r\n":
            return json.loads(sys.stdin.buffer.read(length))
    return None


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def send(**message: Any) -> None:
    sys.stdout.buffer.write(frame(json.dumps({"jsonrpc": "2.0", **message}).encode()))
    sys.stdout.buffer.flush()


def error(line: int, text: str, severity: int = 1) -> dict[str, Any]:
    ends = {"start": {"line": line, "character": 0}, "end": {"line": line, "character": 1}}
    return {"range": ends, "severity": severity, "message": text, "source": "fake", "code": 7}


def errors_in(text: str) -> list[dict[str, Any]]:
    lines = enumerate(text.splitlines())
    found = [error(at, f"this is wrong: {line.strip()}") for at, line in lines if "wrong" in line]
    return [*found, error(0, "a warning", severity=2)]


def publish(uri: str, errors: list[dict[str, Any]], version: int | None) -> None:
    params = {"uri": uri, "diagnostics": errors, **({} if version is None else {"version": version})}
    send(method="textDocument/publishDiagnostics", params=params)


def symbols() -> list[dict[str, Any]]:
    span = {"start": {"line": 1, "character": 0}, "end": {"line": 2, "character": 4}}
    root = Path.cwd().as_uri()
    outside = {"name": "outside", "kind": 12, "location": {"uri": "file:///etc/passwd", "range": span}}
    inside = {"name": "inside", "kind": 12, "location": {"uri": f"{root}/a.fake", "range": span}}
    return [inside, outside, {**inside, "name": "a file", "kind": 1}]


def document_symbols() -> list[dict[str, Any]]:
    span = {"start": {"line": 1, "character": 0}, "end": {"line": 2, "character": 4}}
    return [{"name": "two", "kind": 12, "range": span, "selectionRange": span}]


def changed(params: dict[str, Any]) -> None:
    document = params["textDocument"]
    text = document["text"] if "text" in document else params["contentChanges"][0]["text"]
    uri, version = document["uri"], document["version"]
    if MODE == "silent" or (MODE == "once" and version > 1):
        return
    if MODE.startswith("asked"):
        ASKED[uri] = text
        return
    if MODE == "slow":
        time.sleep(float(REST[0]))
    if MODE == "crash":
        sys.exit(3)
    if MODE == "others":
        for number in range(8):
            publish(f"{Path.cwd().as_uri()}/other{number}.fake", [error(0, f"other {number}")], None)
        for private in (Path("/etc/passwd"), Path.cwd().parent / "bob" / "secret.fake"):
            publish(private.as_uri(), [error(0, "a secret")], None)
    if MODE == "escape":
        outcome = "written"
        try:
            Path(REST[0]).write_text("escaped")
        except OSError as failure:
            outcome = type(failure).__name__
        publish(uri, [error(0, outcome)], version)
        return
    publish(uri, errors_in(text), None if MODE == "unversioned" else version)


def flood() -> None:
    while True:
        publish(f"{Path.cwd().as_uri()}/flood{time.time_ns()}.fake", [error(0, "x" * 1000)] * 20, None)


def hostile() -> None:
    """What a peer could do with a client that is made for servers."""
    send(method="exit")
    send(method="$/cancelRequest", params={"id": 1})
    send(id=1, method="shutdown")
    send(id=2, method="workspace/executeCommand", params={"command": "x", "arguments": []})
    send(method="unknown/thing", params={"type_name": "x", "a": [{"b": {}}]})
    send(id={"a": 1}, method="textDocument/didOpen", params=None)
    send(id=3, method="workspace/configuration", params={"items": [{}] * 5000})
    sys.stdout.buffer.write(frame(b"not json") + frame(b"[" * 100_000) + frame(b'{"jsonrpc": "2.0", "id": "none"}'))
    sys.stdout.buffer.flush()


def answer(message: dict[str, Any]) -> None:  # noqa: C901, PLR0912
    method, params = message.get("method"), message.get("params") or {}
    match method:
        case "initialize":
            if MODE == "slow-start":
                time.sleep(float(REST[0]))
            asked = {"diagnosticProvider": {"interFileDependencies": False}} if MODE.startswith("asked") else {}
            send(id=message["id"], result={"capabilities": {"textDocumentSync": 1, **asked}})
        case "initialized" if MODE == "flood":
            flood()
        case "initialized" if MODE == "deaf":
            time.sleep(3600)
        case "initialized" if MODE == "hostile":
            hostile()
        case "initialized" if MODE == "huge":
            sys.stdout.buffer.write(frame(b" " * 50_000_000))
        case "initialized" if MODE == "garbage":
            while True:
                sys.stdout.buffer.write(b"no header at all\n" * 1000)
        case "textDocument/didOpen" | "textDocument/didChange":
            changed(params)
        case "textDocument/documentSymbol" if MODE != "silent":
            send(id=message["id"], result=document_symbols())
        case "textDocument/diagnostic":
            time.sleep(4 if MODE == "asked-late" and len(ASKED) == 1 else 0)
            items = errors_in(ASKED[params["textDocument"]["uri"]])
            send(id=message["id"], result={"kind": "full", "items": items})
        case "workspace/symbol":
            send(id=message["id"], result=symbols())
        case "textDocument/hover":
            send(id=message["id"], result={"contents": "a hover"})


def main() -> None:
    if MODE == "dead":
        sys.exit(1)
    if MODE == "mute":
        time.sleep(3600)
    while (message := read()) is not None:
        if LOG:
            with open(LOG, "a") as log:
                log.write(message.get("method", "") + "\n")
        answer(message)


if __name__ == "__main__":
    main()
