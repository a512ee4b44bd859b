import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tool_host import FakeHost

from app.project.sandbox.sandbox import OFF
from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.bash import BashParameters, BashTool
from app.tools.process import choose_shell, command_environment

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nowhere"}


def make_tool(**changes: Any) -> BashTool:
    return BashTool(**({"shell": "/bin/sh", "sandbox": OFF, "environment": ENVIRONMENT} | changes))


async def run(ctx: ToolContext, command: str, *, tool: BashTool | None = None, **arguments: object) -> ToolResult:
    parameters = BashParameters.model_validate({"command": command, "description": "says what", **arguments})
    return await (tool or make_tool()).execute(parameters, ctx)


async def test_a_command_s_output_and_exit_code_are_its_result(ctx: ToolContext, host: FakeHost) -> None:
    result = await run(ctx, "sleep 0.05; echo out; echo err >&2; exit 4")
    assert result.title == "says what"
    assert result.output == "out\nerr\n"
    assert result.metadata == {"output": "out\nerr\n", "exit": 4, "description": "says what"}
    assert host.updates[0] == {"title": None, "metadata": {"output": "", "description": "says what"}}, "before any output"
    result = await run(ctx, "head -c 40000 /dev/zero | tr '\\0' x")
    assert result.output == "x" * 40_000
    assert result.metadata["output"] == "x" * 30_000 + "\n\n...", "people see the beginning alone"


async def test_the_server_works_on_while_a_failure_is_explained(ctx: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of the output are looked up, on a disk that may be slow."""
    monkeypatch.setattr("app.tools.builtin.bash.hint", lambda *_: threading.current_thread().name)
    assert threading.current_thread().name not in (await run(ctx, "false")).output


async def test_a_command_runs_in_the_sessions_directory_or_the_named_one(ctx: ToolContext, host: FakeHost, project: Path) -> None:
    (project / "sub").mkdir()
    assert (await run(ctx, "pwd")).output == f"{project}\n"
    assert (await run(ctx, "pwd", workdir="sub")).output == f"{project}/sub\n"
    assert (await run(ctx, "pwd", workdir=str(project / "sub"))).output == f"{project}/sub\n"
    assert "external_directory" not in host.permissions
    await run(ctx, "pwd", workdir=str(project.parent))
    assert (host.asks[-2].permission, host.asks[-2].patterns) == ("external_directory", [str(project.parent)])


async def test_the_shell_given_is_used_whatever_the_environment_says(ctx: ToolContext, project: Path) -> None:
    shell = project / "myshell"
    shell.write_text('#!/bin/sh\necho "mine: $2"\n')
    shell.chmod(0o755)
    tool = make_tool(shell=str(shell), environment=ENVIRONMENT | {"SHELL": "/bin/false"})
    assert (await run(ctx, "anything", tool=tool)).output == "mine: anything\n"


@pytest.mark.parametrize(
    ("shell", "given", "message"),
    [
        ("/bin/sh", {"workdir": "none"}, "does not exist"),
        ("/bin/sh", {"workdir": 300 * "x"}, "does not exist"),
        ("/bin/sh", {"timeout": -1}, "negative"),
        ("/no/such/shell", {}, "/no/such/shell"),
    ],
)
async def test_what_cannot_be_run_is_told(
    ctx: ToolContext, host: FakeHost, shell: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        await run(ctx, "true", tool=make_tool(shell=shell), **given)
    assert host.asks == [] or "timeout" not in given


async def test_hidden_variables_do_not_reach_the_command(ctx: ToolContext) -> None:
    environment = ENVIRONMENT | {"OPENAI_API_KEY": "s3cret", "GREETING": "hi"}
    tool = make_tool(environment=command_environment(environment, frozenset()))
    output = (await run(ctx, "env", tool=tool)).output
    assert "s3cret" not in output
    assert "GREETING=hi" in output


async def test_updates_are_few_however_many_chunks(ctx: ToolContext, host: FakeHost) -> None:
    begun = time.monotonic()
    await run(ctx, "i=0; while [ $i -lt 300 ]; do echo $i; /bin/true; i=$((i+1)); done")
    assert len(host.updates) <= 3 + (time.monotonic() - begun) / 0.1


async def test_a_command_that_takes_too_long_is_ended_and_told_of(ctx: ToolContext) -> None:
    result = await run(ctx, "echo begun; sleep 30", timeout=100)
    assert result.output.startswith("begun\n\n\n<bash_metadata>\n")
    assert "100 ms" in result.output
    assert result.output.endswith("\n</bash_metadata>")
    assert (result.metadata["exit"], result.metadata["output"]) == (None, result.output)
    tool = make_tool(default_timeout_ms=50)
    assert "50 ms" in (await run(ctx, "sleep 30", tool=tool)).output
    assert "50 ms" in tool.description


async def test_each_command_is_asked_about_after_the_paths_outside(ctx: ToolContext, host: FakeHost) -> None:
    chain, outside = "git --version --short && echo hi | cat", "cat /etc/hosts >/dev/null"
    for line in (chain, outside):
        await run(ctx, line)
    assert [(ask.permission, ask.patterns, ask.always) for ask in host.asks] == [
        ("bash", ["git --version --short", "echo hi", "cat"], ["git --version *", "echo *", "cat *"]),
        ("external_directory", ["/etc/hosts"], ["/etc/*"]),
        ("bash", ["cat /etc/hosts"], ["cat *"]),
    ]
    assert [ask.metadata["command"] for ask in host.asks] == [chain, outside, outside]
    assert [subject.pattern for subject in host.asks[0].subjects] == host.asks[0].patterns


@pytest.mark.parametrize(
    ("environment", "found", "chosen"),
    [
        ({"SHELL": "/usr/bin/zsh"}, "/bin/bash", "/usr/bin/zsh"),
        ({"SHELL": "/usr/bin/fish"}, "/bin/bash", "/bin/bash"),
        ({"SHELL": "/opt/nu"}, None, "/bin/sh"),
        ({}, "/usr/local/bin/bash", "/usr/local/bin/bash"),
        ({"SHELL": ""}, None, "/bin/sh"),
    ],
)
def test_the_shell_is_the_users_where_it_is_one_like_sh(environment: dict[str, str], found: str | None, chosen: str) -> None:
    assert choose_shell(environment, lambda name: found) == chosen


def test_variables_with_keys_of_providers_and_of_the_server_are_secret() -> None:
    secret = "ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN OPENAI_API_KEY AZURE_OPENAI_API_KEY OPENCODE_SERVER_PASSWORD ACME_LLM"
    secret += " OPENCODE_CONFIG_CONTENT OPENCODE_API_KEY OPENSESSION_DATABASE_URL OPENCODE_SERVER_USERNAME opensession_secret_key"
    harmless = {"PATH", "HOME", "GITHUB_TOKEN", "NPM_TOKEN", "OPENAI_BASE_URL", "OPENCODE_CLIENT", "MY_API_KEY"}
    environment = dict.fromkeys([*secret.split(), *harmless], "value")
    assert command_environment(environment, frozenset({"ACME_LLM", "NOT_SET"})) == dict.fromkeys(harmless, "value")
