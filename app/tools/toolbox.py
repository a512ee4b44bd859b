"""All tools, and the selection that an agent is offered."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from app.permissions.rules import evaluate, hidden_tools
from app.project.config.flags import Flags
from app.project.sandbox.sandbox import Sandbox
from app.record.postgres import Locks
from app.schema.config import Config
from app.schema.model import Agent, Model, Skill
from app.tools.base import Tool
from app.tools.builtin.apply_patch import ApplyPatchTool
from app.tools.builtin.bash import DEFAULT_TIMEOUT_MS, BashTool
from app.tools.builtin.conversation import BatchTool, InvalidTool, QuestionTool, SkillTool, TaskTool, TodoReadTool, TodoWriteTool
from app.tools.builtin.edit import EditTool, MultiEditTool, WriteTool
from app.tools.builtin.find import GlobTool, GrepTool, ListTool, LspTool
from app.tools.builtin.read import ReadTool
from app.tools.builtin.webfetch import WebFetchTool
from app.tools.changes import FileEditor
from app.tools.process import choose_shell, command_environment
from app.tools.text_file import FileTimes
from app.tools.web import PinnedRequests

CLIENTS_WITH_QUESTIONS = ("app", "cli", "desktop")
"""Clients that can show a question (OPENCODE_CLIENT)."""

_REPLACED_BY_PATCH = ("edit", "write", "multiedit")


class Toolbox:
    """The tools of this server. Task and skill tools are created per agent, all others once. `provider_env`: the variables that
    contain providers' keys."""

    def __init__(
        self, flags: Flags, provider_env: frozenset[str], allow_private_addresses: bool, sandbox: Sandbox, locks: Locks
    ) -> None:
        self.sandbox = sandbox
        self.times = FileTimes(check_disabled=flags.disable_filetime_check)
        self.read = ReadTool(self.times)
        self.list = ListTool(sandbox)
        self.shell = choose_shell(os.environ)
        self.environment = command_environment(os.environ, provider_env)
        """The environment of commands, without providers' keys."""
        self.bash = BashTool(
            shell=self.shell,
            sandbox=sandbox,
            environment=self.environment,
            default_timeout_ms=flags.experimental_bash_default_timeout_ms or DEFAULT_TIMEOUT_MS,
        )
        editor = FileEditor(self.times, locks)
        self._fixed: tuple[Tool[Any], ...] = (
            InvalidTool(),
            QuestionTool(),
            self.bash,
            self.read,
            GlobTool(sandbox),
            GrepTool(sandbox),
            self.list,
            EditTool(editor),
            MultiEditTool(editor),
            WriteTool(editor),
            WebFetchTool(PinnedRequests(allow_private=allow_private_addresses)),
            TodoWriteTool(),
            TodoReadTool(),
            ApplyPatchTool(editor),
            BatchTool(),
            *([LspTool()] if flags.experimental_lsp_tool else []),
        )
        self._names = frozenset([*self.ids(), "external_directory", "doom_loop"])
        """What no other tool may be called: `Allow always` for a tool allows the permission of its name."""

    def hide_variables(self, names: Iterable[str]) -> None:
        """Removes variables that a project's configuration uses as keys from the environment of commands."""
        for name in names:
            self.environment.pop(name, None)

    def ids(self) -> list[str]:
        """The ids of all tools."""
        return [*(tool.id for tool in self._fixed), TaskTool.id, SkillTool.id]

    def for_model(
        self, model: Model, config: Config, flags: Flags, subagents: Sequence[Agent], skills: Sequence[Skill]
    ) -> dict[str, Tool[Any]]:
        """The tools that suit the model and are enabled by the configuration, by id."""
        tools = {tool.id: tool for tool in (*self._fixed, TaskTool(subagents), SkillTool(skills))}
        unfit = set(_REPLACED_BY_PATCH if prefers_patches(model) else [ApplyPatchTool.id])
        if flags.client not in CLIENTS_WITH_QUESTIONS:
            unfit.add(QuestionTool.id)
        if not config.experimental.batch_tool:
            unfit.add(BatchTool.id)
        return {name: tool for name, tool in tools.items() if name not in unfit}

    def for_agent(
        self, model: Model, agent: Agent, config: Config, flags: Flags, subagents: Sequence[Agent], skills: Sequence[Skill]
    ) -> dict[str, Tool[Any]]:
        """The tools that an agent may use, without those that its rules deny altogether; `invalid` is always included."""
        allowed = [skill for skill in skills if evaluate("skill", skill.name, agent.permission).action != "deny"]
        return _not_hidden(self.for_model(model, config, flags, subagents, allowed), agent)

    def external(self, tools: Iterable[Tool[Any]], agent: Agent) -> dict[str, Tool[Any]]:
        """The tools of plugins and MCP servers that an agent may use, but for those that are called as one of the server's."""
        return _not_hidden({tool.id: tool for tool in tools if tool.id not in self._names}, agent)


def _not_hidden(tools: dict[str, Tool[Any]], agent: Agent) -> dict[str, Tool[Any]]:
    hidden = hidden_tools(tools, agent.permission) - {InvalidTool.id}
    return {name: tool for name, tool in tools.items() if name not in hidden}


def prefers_patches(model: Model) -> bool:
    """Whether the model is trained on the apply_patch format."""
    name = model.api.id
    return "gpt-" in name and "oss" not in name and "gpt-4" not in name
