"""What a type checker says of programs that use the client, without pydantic's plugin: right ones pass, wrong ones do not."""

import os
import subprocess
import sys
from pathlib import Path

from running_server import ROOT

PROGRAM = """\
from typing import Literal, assert_type

from opensession_client import AsyncOpensession, Opensession, attached_file, models, operations


async def permit(request: models.PermissionRequest) -> Literal["once"]:
    return "once"


async def answers(client: AsyncOpensession) -> None:
    answer = await client.prompt("ses_1", [models.TextPartInput(text="x"), attached_file("a")], on_permission=permit)
    assert_type(answer.text, str)
    assert_type([message async for message in client.messages("ses_1")], list[models.MessageWithParts])


def states(client: Opensession) -> None:
    assert_type(client.call(operations.session_status()), dict[str, models.Idle | models.Retry | models.Busy])
    for event in client.stream():
        if isinstance(event, models.EventMessagePartUpdated):
            part = event.properties.part
            if part.type == "tool" and part.state.status == "completed":
                assert_type(part.state, models.Completed)


def wrong(client: Opensession) -> None:
    client.prompt("ses_1", "x", on_permission=permit)
    client.call(operations.session_get(1))
    models.TextPartInput(txt="x")
"""


def test_programs_are_checked_by_the_types_of_the_api(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "program.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "client")}
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    errors = [
        (line.split(":")[1], line.rpartition("[")[2].rstrip("]")) for line in checked.stdout.splitlines() if "error:" in line
    ]
    first = PROGRAM.splitlines().index("def wrong(client: Opensession) -> None:") + 1
    expected = [(str(first + 1), "arg-type"), (str(first + 2), "arg-type"), (str(first + 3), "call-arg")]
    assert errors == expected, checked.stdout + checked.stderr
