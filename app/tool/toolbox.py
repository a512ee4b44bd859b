"""Which tools there are, and which of them a call is offered (behaviour §11.1)."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.config.flags import Flags
from app.permission.rules import evaluate, hidden_tools
from app.schema.agent import Agent, Skill
from app.schema.config import Config
from app.schema.model import Model
from app.tool.base import Tool
from app.tool.builtin.apply_patch import ApplyPatchTool
from app.tool.builtin.bash import DEFAULT_TIMEOUT_MS, BashTool
from app.tool.builtin.batch import BatchTool
from app.tool.builtin.edit import EditTool
from app.tool.builtin.glob import GlobTool
from app.tool.builtin.grep import GrepTool
from app.tool.builtin.invalid import InvalidTool
from app.tool.builtin.list_files import ListTool
from app.tool.builtin.multiedit import MultiEditTool
from app.tool.builtin.question import QuestionTool
from app.tool.builtin.read import ReadTool
from app.tool.builtin.skill import SkillTool
from app.tool.builtin.task import TaskTool
from app.tool.builtin.todo import TodoReadTool, TodoWriteTool
from app.tool.builtin.webfetch import WebFetchTool
from app.tool.builtin.write import WriteTool
from app.tool.files.file_times import FileTimes
from app.tool.files.locks import FileLocks
from app.tool.process.environment import choose_shell, secret_names, without

ASKING_CLIENTS = ("app", "cli", "desktop")
"""Clients that can show a question (OPENCODE_CLIENT)."""

_REPLACED_BY_PATCH = ("edit", "write", "multiedit")


@dataclass(frozen=True)
class ToolSettings:
    """Process-wide settings of the tools. `provider_env` are the variables that hold providers' keys."""

    flags: Flags
    provider_env: frozenset[str] = frozenset()
    allow_private_addresses: bool = False
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


class Toolbox:
    """The tools of this server; those without a state of their own are made once."""

    def __init__(self, settings: ToolSettings) -> None:
        self.times = FileTimes(check_disabled=settings.flags.disable_filetime_check)
        self.locks = FileLocks()
        self.read = ReadTool(self.times)
        self.list = ListTool()
        self.shell = choose_shell(settings.environment)
        self.environment = without(settings.environment, secret_names(settings.environment, settings.provider_env))
        """What commands see: no provider's key is in it."""
        self.bash = BashTool(
            shell=self.shell,
            environment=self.environment,
            default_timeout_ms=settings.flags.experimental_bash_default_timeout_ms or DEFAULT_TIMEOUT_MS,
        )
        self._fixed: tuple[Tool[Any], ...] = (
            InvalidTool(),
            QuestionTool(),
            self.bash,
            self.read,
            GlobTool(),
            GrepTool(),
            self.list,
            EditTool(self.times, self.locks),
            MultiEditTool(self.times, self.locks),
            WriteTool(self.times, self.locks),
            WebFetchTool(allow_private=settings.allow_private_addresses),
            TodoWriteTool(),
            TodoReadTool(),
            ApplyPatchTool(self.times, self.locks),
            BatchTool(),
        )

        self._names = frozenset(self.ids())

    def hide(self, names: Iterable[str]) -> None:
        """Variables that turn out to hold a key, by a project's configuration: no command sees them from now on."""
        for name in names:
            self.environment.pop(name, None)

    def ids(self) -> list[str]:
        """All that are registered, whoever may use them."""
        return [*(tool.id for tool in self._fixed), TaskTool.id, SkillTool.id]

    def for_model(
        self, model: Model, config: Config, flags: Flags, subagents: Sequence[Agent] = (), skills: Sequence[Skill] = ()
    ) -> dict[str, Tool[Any]]:
        """What a model is fit for and the configuration turns on, by id."""
        tools = {tool.id: tool for tool in (*self._fixed, TaskTool(subagents), SkillTool(skills))}
        unfit = set(_REPLACED_BY_PATCH if prefers_patches(model) else [ApplyPatchTool.id])
        if flags.client not in ASKING_CLIENTS:
            unfit.add(QuestionTool.id)
        if not config.experimental.batch_tool:
            unfit.add(BatchTool.id)
        return {name: tool for name, tool in tools.items() if name not in unfit}

    def for_call(
        self,
        model: Model,
        agent: Agent,
        config: Config,
        flags: Flags,
        subagents: Sequence[Agent],
        skills: Sequence[Skill],
        foreign: Sequence[Tool[Any]] = (),
    ) -> dict[str, Tool[Any]]:
        """What an agent may use of it and of the foreign tools, which cannot take the place of one of ours. A tool that its rules
        deny altogether is not shown; `invalid` always answers."""
        allowed = [skill for skill in skills if evaluate("skill", skill.name, agent.permission).action != "deny"]
        own = self.for_model(model, config, flags, subagents, allowed)
        tools = {**own, **{tool.id: tool for tool in foreign if tool.id not in self._names}}
        hidden = hidden_tools(tools, agent.permission) - {InvalidTool.id}
        return {name: tool for name, tool in tools.items() if name not in hidden}


def prefers_patches(model: Model) -> bool:
    """Models trained on the apply_patch format."""
    name = model.api.id
    return "gpt-" in name and "oss" not in name and "gpt-4" not in name
