"""Agents, commands and skills written as markdown: YAML frontmatter between `---` lines, then the prompt."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from app.project.config.errors import ConfigFrontmatterError
from app.project.config.parse import MAX_VALUES, has_too_many_values, validate
from app.project.config.sources import ConfigWatch
from app.schema.config import AgentConfig, CommandConfig
from app.schema.errors import ServiceError
from app.schema.model import Skill
from app.util.bounds import DEEPEST, plain_json

MAX_FRONTMATTER = 64 * 1024
_TOP_LEVEL = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:[ \t]+(\S.*)$")
_FENCE = re.compile(r"^-{3,}\s*$")
_NOT_TEXT = ("'", '"', "|", ">", "#")
_NOT_PLAIN = (*_NOT_TEXT, "{", "[", "&", "*", "!")


class Document(NamedTuple):
    path: Path
    text: str
    data: dict[str, Any]
    body: str


def parse(text: str, path: Path) -> Document:
    """Raises ConfigFrontmatterError, which names the line in the file."""
    if not _FENCE.match(text.split("\n", 1)[0]):
        return Document(path, text, {}, text.strip())
    # Imported here: few projects have markdown agents, and the two cost 40 ms.
    import yaml

    lines = text.split("\n")
    end = next((index for index, line in enumerate(lines[1:], 1) if _FENCE.match(line)), 0)
    if sum(map(len, lines[:end])) > MAX_FRONTMATTER:
        raise ConfigFrontmatterError(str(path), f"the frontmatter is longer than {MAX_FRONTMATTER // 1024} KiB", 1)
    if not end:
        return Document(path, text, {}, text.strip())
    try:
        data = _values(lines[1:end]) or {}
        if has_too_many_values(data):
            raise ConfigFrontmatterError(str(path), f"the frontmatter has more than {MAX_VALUES} values", 1)
        data = plain_json(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem, mark = getattr(error, "problem", None) or error, getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None  # the mark counts the opening fence as 0
        raise ConfigFrontmatterError(str(path), f"the frontmatter is not YAML: {problem}", line) from error
    return Document(path, text, data if isinstance(data, dict) else {}, "\n".join(lines[end + 1 :]).strip())


def _values(lines: Sequence[str]) -> Any:
    """What is no YAML is read again with more values as text, as OpenCode reads them: `description: [WIP] do: this`."""
    import yaml

    try:
        return _load(lines, _NOT_PLAIN)
    except yaml.YAMLError:
        with suppress(yaml.YAMLError):
            return _load(lines, _NOT_TEXT)
        raise


def _load(lines: Sequence[str], kept: tuple[str, ...]) -> Any:
    from frontmatter.default_handlers import YAMLHandler

    head = "\n".join(["", *(_quote_colon(line, kept) for line in lines)])  # an error's line counts the opening fence
    _require_shallow(head)
    return YAMLHandler().load(head)


def _require_shallow(head: str) -> None:
    """The reader in C ends the process when values are nested thousands deep, so their starts and ends are counted first."""
    import yaml
    from frontmatter.default_handlers import SafeLoader

    depth = 0
    for event in yaml.parse(head, Loader=SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"values are nested more than {DEEPEST} deep")


def _quote_colon(line: str, kept: tuple[str, ...]) -> str:
    """`description: Use when: asked` is no YAML: such values, on one line at the top level, are put in quotes. `kept`: how those
    begin that are not."""
    match = _TOP_LEVEL.match(line.rstrip())
    if match is None or match[2].startswith(kept) or ":" not in match[2].split(" #")[0]:
        return line
    return f"{match[1]}: {json.dumps(match[2], ensure_ascii=False)}"


def layers(watch: ConfigWatch, directory: Path, folders: set[str], warnings: list[ServiceError]) -> Iterator[dict[str, Any]]:
    """The layers of a directory's documents, lowest first: `{command,commands}/**/*.md`, whose body is the template;
    `{agent,agents}/**/*.md`; `{mode,modes}/*.md`, the older form of a primary agent."""

    def documents(*names: str, deep: bool = True) -> Iterator[tuple[str, Document]]:
        """Each document with its name: its `name` in the frontmatter, or the path below the folder, without `.md`."""
        for folder in (directory / name for name in names if name in folders):
            for path in watch.files(folder, deep=deep):
                document = _document(watch, path, warnings) if path.suffix == ".md" else None
                if document:
                    yield str(document.data.get("name") or path.relative_to(folder).with_suffix("").as_posix()), document

    def agents(found: Iterator[tuple[str, Document]], **fields: str) -> dict[str, Any]:
        return {name: {**_agent(document), **fields} for name, document in found}

    commands = documents("command", "commands")
    yield {"command": {name: _checked(CommandConfig, each, {**each.data, "template": each.body}) for name, each in commands}}
    yield {"agent": agents(documents("agent", "agents"))}
    yield {"agent": agents(documents("mode", "modes", deep=False), mode="primary")}


def _agent(document: Document) -> dict[str, Any]:
    # An empty body is no prompt: a file that only sets a model must not erase the prompt of the agent it names.
    return _checked(AgentConfig, document, {**document.data, **({"prompt": document.body} if document.body else {})})


def _checked(model: type[AgentConfig] | type[CommandConfig], document: Document, data: dict[str, Any]) -> dict[str, Any]:
    def line_of(where: Sequence[str | int]) -> int | None:
        starts = (line.startswith(f"{where[0]}:") for line in document.text.split("\n")) if where else ()
        return next((number for number, found in enumerate(starts, 1) if found), None)

    return validate(model, data, str(document.path), line_of).layer()


def _document(watch: ConfigWatch, path: Path, warnings: list[ServiceError]) -> Document | None:
    """None, with a warning, for a file that cannot be parsed."""
    text = watch.read(path)
    if text is None:
        return None
    try:
        return parse(text, path)
    except ConfigFrontmatterError as error:
        warnings.append(error)
        return None


def skills(watch: ConfigWatch, folder: Path, warnings: list[ServiceError]) -> Iterator[Skill]:
    """The skills in `folder/**/SKILL.md`."""
    for path in watch.files(folder):
        document = _document(watch, path, warnings) if path.name == "SKILL.md" else None
        if document is None:
            continue
        name, description = document.data.get("name"), document.data.get("description")
        if isinstance(name, str) and isinstance(description, str):
            yield Skill(name=name, description=description, location=str(path), content=document.body)
        else:
            warnings.append(ConfigFrontmatterError(str(path), "a skill needs a `name` and a `description`", 1))
