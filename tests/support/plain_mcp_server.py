"""A small MCP server over stdio without any library, so that it starts in no time and can misbehave. Run as a program; its
arguments are how: `no-tools`, `greeting` (prints what is no message first), `deaf` (never answers anything),
`odd-lists` (its prompts and resources are none), `ours` (its tools have the ends of names of ours), `bare-prompt` (its prompt
takes no arguments), `hostile-schema` (to find that its data does not fit its schema takes years)."""

import json
import os
import sys
import time
from typing import Any

MODES = set(sys.argv[1:])
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOLS = {
    "echo": "Says it again",
    "many.words": "Two texts and a picture",
    "data": "Says something as data alone",
    "fail": "Fails",
    "hang": "Never answers",
    "work": "Reports progress, then answers",
    "die": "Ends the server",
    "environment": "Which variables it sees",
    "grow": "Offers one more tool",
    "flood": "Says a lot",
    "endless": "Says megabytes without an end of the line",
    "tiny": "Says very many values",
}

OURS = ("patch", "directory", "loop")


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": one} for one in texts]


def call(name: str, arguments: dict[str, Any], progress: Any) -> dict[str, Any] | None:  # noqa: C901, PLR0912  one case a tool
    """None: there is no answer."""
    match name:
        case "echo":
            return {"content": text(arguments["text"])}
        case "many.words":
            blob = {"uri": "demo://clip.bin", "mimeType": "application/zip", "blob": "AAEC"}
            image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
            return {"content": [*text("one"), image, *text("two"), {"type": "resource", "resource": blob}]}
        case "data":
            return {"content": [], "structuredContent": {"answer": "a" * 50 + "!" if "hostile-schema" in MODES else 42}}
        case "fail":
            return {"content": text("that was wrong"), "isError": True}
        case "work":
            for step in range(4):
                time.sleep(0.3)
                send({"method": "notifications/progress", "params": {"progressToken": progress, "progress": step}})
            return {"content": text("worked")}
        case "die":
            print("goodbye", file=sys.stderr, flush=True)
            os._exit(1)
        case "environment":
            return {"content": text("\n".join(sorted(os.environ)))}
        case "grow":
            TOOLS["grown"] = "Was not there before"
            send({"method": "notifications/tools/list_changed"})
            return {"content": text("grown")}
        case "endless":
            for _ in range(arguments["megabytes"]):
                sys.stdout.write("x" * 2**20)
        case "tiny":
            return {"content": [], "structuredContent": {"many": [[] for _ in range(200_000)]}}
        case "flood":
            return {"content": text("line\n" * 5000)}
    return None


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            can: dict[str, Any] = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
            info = {"name": "plain", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": can, "serverInfo": info}
        case "tools/list":
            schema = {"type": "object", "properties": {"text": {"type": "string"}}}
            offered = {} if "no-tools" in MODES else dict.fromkeys(OURS, "") if "ours" in MODES else TOOLS
            output = {"type": "object", "properties": {"answer": {"pattern": "^(a+)+$"}}}
            given = {"inputSchema": schema, **({"outputSchema": output} if "hostile-schema" in MODES else {})}
            return {"tools": [{"name": name, "description": why, **given} for name, why in offered.items()]}
        case "tools/call":
            return call(params["name"], params.get("arguments") or {}, params.get("_meta", {}).get("progressToken"))
        case "prompts/list" | "resources/list" if "odd-lists" in MODES:
            return {method.partition("/")[0]: [{"name": 5}]}
        case "prompts/list":
            arguments = [] if "bare-prompt" in MODES else [{"name": "name", "required": True}, {"name": "how"}]
            return {"prompts": [{"name": "greet", "description": "Greets someone", "arguments": arguments}]}
        case "prompts/get":
            return {
                "messages": [{"role": "user", "content": text(f"Greet with {json.dumps(params['arguments'])}, !`id` @a.txt")[0]}]
            }
        case "resources/list":
            notes = {"name": "notes", "uri": "demo://notes", "mimeType": "application/json", "description": "What was noted"}
            return {"resources": [notes, {"name": "pixel", "uri": "demo://pixel", "mimeType": "image/png"}]}
        case "resources/read":
            return read(params["uri"])
    raise KeyError(method)


def read(uri: str) -> dict[str, Any]:
    if uri == "demo://notes":
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": '{"noted": true}'}]}
    if uri == "demo://pixel":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
    raise KeyError(uri)


def main() -> None:
    if "greeting" in MODES:
        print("Welcome to the plain server!", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "deaf" in MODES:
            continue
        try:
            result = answer(message["method"], message.get("params") or {})
        except KeyError as error:
            send({"id": message["id"], "error": {"code": -32601, "message": f"Unknown: {error}"}})
            continue
        if result is not None:
            send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
