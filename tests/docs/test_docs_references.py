"""What the pages for developers say of the code is there: files, functions, classes and tests by name."""

import pytest
from code_references import dead_references, references
from running_server import ROOT

NAMED = {"docs/glossary.md": 50, "docs/architecture.md": 100, "CONTRIBUTING.md": 15}
"""The pages, each with a number of references that it has at least."""


@pytest.mark.parametrize("page", NAMED)
def test_every_name_of_code_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    assert dead_references(text) == []
    assert len(references(text)) >= NAMED[page]


def test_a_renamed_function_class_or_file_is_noticed() -> None:
    text = """`app/turn/turn.py:Turn.run` `app/turn/` `Turn.run` `GET /session` `message.updated` `ask`
    `app/turn/turn.py:Turn.gone` `app/turn/gone.py` `Turn.gone` `GoneTurn` `app/gone/`
    `tests/docs/test_docs_references.py:test_gone`"""
    assert dead_references(text) == [
        "app/turn/turn.py:Turn.gone",
        "app/turn/gone.py",
        "Turn.gone",
        "GoneTurn",
        "app/gone/",
        "tests/docs/test_docs_references.py:test_gone",
    ]
    assert len(references(text)) == 9
