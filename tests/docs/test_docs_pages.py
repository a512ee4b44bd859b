"""What the documentation shows works as it stands there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_snippets import KINDS, Block, blocks, matches, run_page
from running_server import ROOT, RunningServer, serving, this_checkout

from app.schema.config import Config

PAGES = sorted((ROOT / "docs").glob("*.md"))
CHECKED_ELSEWHERE = {"json", "json config", "nginx", "caddy", "python plugin", "python tool"}
"""Below, in test_docs_proxies.py and in flows/test_plugin_docs.py."""

PROGRAMS = [(page, kind) for page in PAGES for kind in KINDS if any(block.kind == kind for block in blocks(page.read_text()))]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    command, environment = this_checkout()
    with serving(command, tmp_path, environment) as running:
        yield running


@pytest.mark.parametrize(("page", "kind"), PROGRAMS, ids=[f"{page.stem}-{kind.replace(' ', '-')}" for page, kind in PROGRAMS])
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path, kind: str, server: RunningServer, tmp_path: Path) -> None:
    wrong = [
        f"{page.name}:{block.line} shows\n{block.shown}\nand printed\n{printed}"
        for block, printed in run_page(page, kind, server, tmp_path)
        if block.shown is not None and not matches(block.shown, printed)
    ]
    assert not wrong, "\n".join(wrong)


def all_blocks() -> list[tuple[Path, Block]]:
    return [(page, block) for page in PAGES for block in blocks(page.read_text())]


def test_every_block_is_run_or_checked() -> None:
    known = {*KINDS, *CHECKED_ELSEWHERE, "text"}
    assert [f"{page.name}:{block.line} {block.kind}" for page, block in all_blocks() if block.kind not in known] == []


def test_json_is_json_and_configuration_is_valid() -> None:
    for page, block in all_blocks():
        if block.language == "json":
            assert json.loads(block.code) is not None, f"{page.name}:{block.line}"
        if block.kind == "json config":
            Config.model_validate_json(block.code)


def headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere() -> None:
    dead = []
    for page in [*PAGES, ROOT / "README.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            name, _, heading = target.partition("#")
            found = page.parent / name if name else page
            if not found.exists() or (heading and heading not in headings(found)):
                dead.append(f"{page.name}: {target}")
    assert dead == []


def test_every_page_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert [page.name for page in PAGES if page.name != "README.md" and f"({page.name})" not in index] == []


def test_a_page_that_shows_something_else_is_noticed() -> None:
    assert matches("a ses_1 at 1700000000000 …\n", "a ses_xyZ at 1795272214584 and more\n")
    assert not matches("a", "b") and not matches("a", "a\nb") and not matches("ses_1", "msg_1") and not matches("a.c", "abc")
