"""Links within the documentation lead to a page that is there, and to a heading of it."""

import re
from pathlib import Path

import pytest
from doc_snippets import prose
from running_server import ROOT

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md", ROOT / "client" / "README.md"]
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


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, page.read_text()) == []


def test_a_link_to_a_heading_or_page_that_is_gone_is_noticed() -> None:
    text = "[a](glossary.md#the-turn) [b](glossary.md#the-bend) [c](gone.md) [d](#the-turn) [e](https://example.com/#gone)"
    assert dead_links(ROOT / "docs" / "glossary.md", text) == ["glossary.md#the-bend", "gone.md#"]
