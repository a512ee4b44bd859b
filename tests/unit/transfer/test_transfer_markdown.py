"""Markdown exports: nothing that a message, a tool or a file contains ends the block that it stands in."""

from itertools import pairwise

import pytest
from conversation import assistant, completed, file, reasoning, text, tool, user
from markdown_it import MarkdownIt

from app.schema.session import FileDiff
from app.transfer import markdown


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param("```\n# Out\n```", id="ticks"),
        pytest.param("`````\n# Out\n````\n``````", id="more ticks"),
        pytest.param("~~~~ js\n# Out", id="an open fence"),
        pytest.param("```\n~~~\n# Out", id="a fence of the other kind"),
        pytest.param("   ```\n# Out", id="an indented fence"),
        pytest.param("```a`b\n# Out", id="no fence"),
        pytest.param("- ```\n  x\n  ```", id="a fence in a list"),
        pytest.param("- one\n\n  ```\n  x", id="an open fence in a list"),
        pytest.param("> ```\n> x", id="a fence in a quotation"),
        pytest.param("`" * 12, id="only ticks"),
        pytest.param("```\r# Out\r\n~~~", id="other line ends"),
        pytest.param("<!--\n# Out\n<details>\n<script>", id="html"),
        pytest.param("x </details></summary>\n<details>", id="closing html"),
        pytest.param("- <script>\n- <!--", id="html in a list"),
    ],
)
def test_texts_reasoning_outputs_and_diffs_are_code_whatever_they_contain(hostile: str) -> None:
    question = user(text(hostile))
    answer = assistant(question, reasoning(hostile), tool(completed(hostile)), text("Done."))
    diff = markdown.diffs([FileDiff(file="a.md", before="", after=hostile, additions=1, deletions=0)])
    page = markdown.message(question) + markdown.message(answer) + diff
    tokens = MarkdownIt("commonmark").parse(page)
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open" and token.tag == "h2"]
    assert [heading.split(" ")[0] for heading in headings] == ["User", "Assistant", "Changed"], "those of the export"
    asked, thought, _, output, said, changed = [token.content for token in tokens if token.type == "fence"]
    as_code = hostile.replace("\r\n", "\n").replace("\r", "\n").rstrip() + "\n"
    assert asked == thought == output == as_code and said == "Done.\n"
    assert all(line in changed for line in as_code.splitlines())
    assert "<summary>Reasoning</summary>" in page


def test_an_image_is_named_and_its_content_is_left_out() -> None:
    page = markdown.message(user(text("See"), file(filename="a`b.png")))
    assert "a\\`b.png" in page and "image/png" in page and "AAAA" not in page
