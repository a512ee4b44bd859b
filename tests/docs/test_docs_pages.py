"""What the documentation shows works as it stands there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deployment import COMMANDS
from doc_snippets import KINDS, blocks, matches, prose, run_page
from pydantic import TypeAdapter
from running_server import ROOT, RunningServer, serving_here

from app.schema.config import Config
from app.schema.event import AnyEvent

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md", ROOT / "client" / "README.md"]
VALIDATED: dict[str, TypeAdapter[Any]] = {"json config": TypeAdapter(Config), "json event": TypeAdapter(AnyEvent)}
CHECKED_ELSEWHERE = {
    "docs/architecture.md": ["mermaid"],
    "docs/cli.md": ["text terminal"],
    "docs/configuration.md": ["json script"],
    "docs/editors.md": ["json", "json", "json", "lua", "elisp", "text", "text"],
    "docs/frontends.md": ["caddy app", "sh app", "sh frontend", "sh openchamber", "sh types", "text types", "ts types"],
    "docs/ide-plugins.md": ["sh steering"],
    "docs/mcp-server.md": ["json mcp", "json mcp"],
    "docs/operations.md": ["nginx", "caddy", "ini oidc", "sh oidc", "text oidc", "sh docker", "sh postgres"],
    "docs/observability.md": ["yaml prometheus"],
    "docs/plugins.md": ["python plugin", "python tool"],
    "docs/scaling.md": ["sh compose", "sh kubernetes"],
    "docs/webhooks.md": ["json webhook"],
    "README.md": ["sh session", "text session"],
}
"""In architecture/test_diagram.py, flows/test_plugin_docs.py, clients/test_mcp_serve.py, clients/test_openchamber.py,
clients/test_run_on_terminal.py, clients/test_readme_session.py, clients/test_steered_terminal.py,
clients/test_typescript_types.py, clients/test_web_app.py, deploy/test_compose.py, deploy/test_kubernetes.py,
unit/providers/test_scripted.py, unit/webhook/test_webhook_sender.py, and the other files here."""

OTHER_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
"""Not at the margin, or without a language: nothing would run it."""

INDENTED = re.compile(r"^\n {4}(?=\S)", re.MULTILINE)

PAGE_NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
PROGRAMS = [(page, kind) for page in PAGES for kind in KINDS if any(block.kind == kind for block in blocks(page.read_text()))]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """It may call this machine, as docs/webhooks.md says."""
    with serving_here(tmp_path, OPENSESSION_WEBHOOK_PRIVATE_ADDRESSES="true") as running:
        yield running


@pytest.mark.parametrize(
    ("page", "kind"), PROGRAMS, ids=[f"{page.parent.name}-{page.stem}-{kind.replace(' ', '-')}" for page, kind in PROGRAMS]
)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path, kind: str, server: RunningServer, tmp_path: Path) -> None:
    wrong = [
        f"{page.name}:{block.line} shows\n{block.shown}\nand printed\n{printed}"
        for block, printed in run_page(page, kind, server, tmp_path)
        if block.shown is not None and not matches(block.shown, printed)
    ]
    assert not wrong, "\n".join(wrong)


def unchecked(page: str) -> list[str]:
    """The kinds that are not run, compared or validated here: unknown ones, and text that no block above it prints."""
    found = blocks(page)
    shown = {block.shown for block in found if block.kind in KINDS}
    return [block.kind for block in found if block.kind not in {*KINDS, *VALIDATED} and block.code not in shown]


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_every_block_is_run_or_checked(page: Path) -> None:
    assert sorted(unchecked(page.read_text())) == sorted(CHECKED_ELSEWHERE.get(str(page.relative_to(ROOT)), []))


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_all_code_stands_in_such_blocks(page: Path) -> None:
    """But the few commands of README and CONTRIBUTING that install or test something, see architecture/test_readme.py."""
    rest = prose(page.read_text())
    assert OTHER_FENCE.findall(rest) == []
    assert page.parent == ROOT or INDENTED.findall(rest) == []


def test_a_block_that_nobody_would_check_is_noticed() -> None:
    assert unchecked("```sh\ntrue\n```\n") == ["sh"]
    assert unchecked("```sh run\ntrue\n```\nprints\n```text\nout\n```\n") == ["text"]
    assert unchecked("```sh run\necho out\n```\n```text\nout\n```\n") == []


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_configuration_and_events_are_valid(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.kind in VALIDATED:
            VALIDATED[block.kind].validate_json(block.code)


def test_every_page_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert [
        page.name for page in PAGES if page.parent == ROOT / "docs" and page.name != "README.md" and f"({page.name})" not in index
    ] == []


def test_a_page_that_shows_something_else_is_noticed() -> None:
    assert matches("a ses_1 at 1700000000000 …\n", "a ses_xyZ at 1795272214584 and more\n")
    assert not matches("a", "b") and not matches("a", "a\nb") and not matches("ses_1", "msg_1") and not matches("a.c", "abc")


# Links lead to a page that is there, and to a heading of it.

_LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchor(heading: str) -> str:
    """As forges spell it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def dead_links(page: Path, text: str) -> list[str]:
    return [
        f"{file}#{heading}"
        for file, heading in _LINK.findall(prose(text))
        if not _leads_somewhere(page.parent / file if file else page, heading)
    ]


def _leads_somewhere(target: Path, heading: str) -> bool:
    return target.exists() and (not heading or heading in map(anchor, _HEADING.findall(prose(target.read_text()))))


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, page.read_text()) == []


def test_a_link_to_a_heading_or_page_that_is_gone_is_noticed() -> None:
    text = "[a](glossary.md#the-turn) [b](glossary.md#the-bend) [c](gone.md) [d](#the-turn) [e](https://example.com/#gone)"
    assert dead_links(ROOT / "docs" / "glossary.md", text) == ["glossary.md#the-bend", "gone.md#"]


def test_each_recipe_for_an_editor_starts_the_agent_by_a_command_that_is_there() -> None:
    assert "acp" in COMMANDS
    for recipe in blocks((ROOT / "docs" / "editors.md").read_text()):
        assert "opensession" in recipe.code and ('"acp"' in recipe.code or "opensession acp" in recipe.code), recipe.line
        assert recipe.language != "json" or json.loads(recipe.code)
