"""TypeScript's compiler as a judge of answers: written down as constants, they must have the types that an SDK promises.

A property that is missing, null or of another type is an error; what is beside what is promised is not.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

JUDGE = """\
type Read<T> = T extends (infer Item)[] ? readonly Read<Item>[] : T extends object ? { readonly [K in keyof T]: Read<T[K]> } : T
type Settled<M> = M extends (...args: any[]) => infer R ? Awaited<R> : never
type DataOf<R> = R extends { stream: AsyncGenerator<infer E> } ? E : R extends { data: infer D } ? D : never
type FailureOf<R> = R extends { error: infer E } ? E : never
type Data<M> = DataOf<Settled<M>>
type Failure<M> = FailureOf<Settled<M>>
declare function has<T>(answer: Read<Exclude<T, undefined>>): void
"""


def is_typed(answer: dict[str, Any]) -> bool:
    """Not an empty answer, nor a heartbeat: OpenCode sends them by the clock, and its types do not know them."""
    return answer["status"] != 204 and tag(answer.get("data")).strip() != "server.heartbeat"


def about(complaint: str) -> str:
    return complaint.partition(":")[0]


def complaints(name: str, module: str, answers: list[dict[str, Any]], node_modules: Path, directory: Path) -> list[str]:
    """What the compiler says of `answers` of the SDK `module`. In front stands what about, after the `name`: `v2 session.get`,
    `v2 event.subscribe session.idle`."""
    lines = judged(name, module, answers)
    (directory / "answers.ts").write_text("\n".join(lines))
    (directory / "tsconfig.json").write_text((node_modules / "tsconfig.json").read_text().replace("*.mjs", "*.ts"))
    (directory / "node_modules").symlink_to(node_modules / "node_modules")
    return [
        re.sub(r"^answers\.ts\((\d+),\d+\)", lambda at: lines[int(at[1]) - 1].partition("// ")[2], line)
        for line in compiled(directory)
    ]


def judged(name: str, module: str, answers: list[dict[str, Any]]) -> list[str]:
    client = [
        f'import type {{ createOpencodeClient }} from "{module}"',
        "type Client = ReturnType<typeof createOpencodeClient>",
    ]
    distinct = {json.dumps(answer): answer for answer in answers}.values()
    return [
        *client,
        *JUDGE.splitlines(),
        *(line for number, answer in enumerate(distinct) for line in question(name, number, answer)),
    ]


def question(name: str, number: int, answer: dict[str, Any]) -> tuple[str, str]:
    """The value has a name of its own: of a literal the compiler would also tell what it has beside what is asked for."""
    method = "".join(f'["{step}"]' for step in answer["method"].split("."))
    kind, value = ("Failure", answer["error"]) if "error" in answer else ("Data", answer["data"])
    constant = f"const a{number} = {json.dumps(value)} as const"
    return constant, f"has<{kind}<Client{method}>>(a{number}) // {name} {answer['method']}{tag(value)}"


def tag(value: Any) -> str:
    """An event's type, or a message's role."""
    found = value.get("payload", value).get("type") or value.get("info", {}).get("role") if isinstance(value, dict) else None
    return f" {found}" if found else ""


def compiled(project: Path) -> list[str]:
    """The compiler's complaints, each one line."""
    command = ["node_modules/.bin/tsc", "--pretty", "false", "--project", "."]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=180)
    return re.sub(r"\n +", " / ", result.stdout + result.stderr).splitlines()
