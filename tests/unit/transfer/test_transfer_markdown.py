"""Markdown exports: nothing that a message, a tool or a file contains ends the block that it stands in."""

from itertools import pairwise

import pytest
from conversation import assistant, completed, file, reasoning, text, tool, user
from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.schema.session import FileDiff
from app.transfer import markdown

HOSTILE = {
    "ticks": "```\n# Out\n```",
    "more ticks": "`````\n# Out\n````\n``````",
    "an open fence": "~~~~ js\n# Out",
    "a fence of the other kind": "```\n~~~\n# Out",
    "an indented fence": "   ```\n# Out",
    "no fence": "```a`b\n# Out",
    "a fence in a list": "- ```\n  x\n  ```",
    "an open fence in a list": "- one\n\n  ```\n  x",
    "a fence in a quotation": "> ```\n> x",
    "only ticks": "`" * 12,
    "other line ends": "```\r# Out\r\n~~~",
    "html": "<!--\n# Out\n<details>\n<script>",
    "closing html": "x </details></summary>\n<details>",
    "html in a list": "- <script>\n- <!--",
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> str:
    return HOSTILE[request.param]


def parsed(page: str) -> list[Token]:
    return MarkdownIt("commonmark").parse(page)


def own_headings(page: str) -> list[str]:
    """Those of the export, which are second-level."""
    return [after.content for token, after in pairwise(parsed(page)) if token.type == "heading_open" and token.tag == "h2"]


def fences(page: str) -> list[str]:
    return [token.content for token in parsed(page) if token.type == "fence"]


def as_code(value: str) -> str:
    return value.replace("\r\n", "\n").replace("\r", "\n").rstrip() + "\n"


def test_texts_reasoning_outputs_and_diffs_are_code_whatever_they_contain(hostile: str) -> None:
    question = user(text(hostile))
    answer = assistant(question, reasoning(hostile), tool(completed(hostile)), text("Done."))
    diff = markdown.diffs([FileDiff(file="a.md", before="", after=hostile, additions=1, deletions=0)])
    page = markdown.message(question) + markdown.message(answer) + diff
    headings = own_headings(page)
    assert [heading.split(" ")[0] for heading in headings] == ["User", "Assistant", "Changed"]
    asked, thought, _, output, said, changed = fences(page)
    assert asked == thought == output == as_code(hostile) and said == "Done.\n"
    assert all(line in changed for line in as_code(hostile).splitlines())
    assert "<summary>Reasoning</summary>" in page


def test_an_image_is_named_and_its_content_is_left_out() -> None:
    page = markdown.message(user(text("See"), file(filename="a`b.png")))
    assert "a\\`b.png" in page and "image/png" in page and "AAAA" not in page
