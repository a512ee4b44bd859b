import pytest
import session_parts
from conversation import assistant, compaction, file, subtask, text, user

from app.schema.message import MessageWithParts
from app.sessions.summary import default_title
from app.turn.ends import aborted
from app.turn.titles import MAX_LENGTH, title_context, title_from_answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("A title", "A title"),
        ("\n\n  A title  \nmore", "A title"),
        ("<think>hm\nhm</think>\n\nA title", "A title"),
        ("<think>a</think><think>b</think>A title", "A title"),
        ("", None),
        (" \n\t\n", None),
        ("<think>only thoughts</think>", None),
        pytest.param("<think>" * 100_000, None, id="thoughts without an end, in the time of reading them"),
        ("x" * MAX_LENGTH, "x" * MAX_LENGTH),
        ("x" * (MAX_LENGTH + 1), "x" * (MAX_LENGTH - 3) + "..."),
    ],
)
def test_a_title_is_the_first_line_that_says_something(answer: str, expected: str | None) -> None:
    assert title_from_answer(answer) == expected


UNNAMED = session_parts.session(title=default_title(child=False))
NAMED = session_parts.session(title="Mine")
CHILD = session_parts.session(title=default_title(child=True), parent_id="ses_0")
FIRST, SECOND, SYNTHETIC = user(text()), user(text()), user(text("made", synthetic=True))
WITH_FILE, TASKS = user(text("made", synthetic=True), file()), user(subtask(), subtask())
BROKEN = assistant(FIRST, finish=None, error=aborted())


@pytest.mark.parametrize(
    ("history", "made_of"),
    [
        pytest.param([SYNTHETIC, FIRST], [SYNTHETIC, FIRST], id="the first prompt"),
        pytest.param(
            [SYNTHETIC, FIRST, assistant(FIRST, text()), user(text())], [SYNTHETIC, FIRST], id="also when it is requested later"
        ),
        pytest.param([WITH_FILE], [WITH_FILE], id="a file is a prompt"),
        pytest.param([SYNTHETIC, user(compaction())], None, id="what the server writes is none"),
        pytest.param([FIRST, BROKEN], None, id="a prompt whose answer failed"),
        pytest.param(
            [FIRST, BROKEN, SECOND, assistant(SECOND, text()), user(text())],
            [FIRST, BROKEN, SECOND],
            id="gives its title up to the next",
        ),
    ],
)
def test_a_title_is_made_of_what_leads_to_the_first_prompt(
    history: list[MessageWithParts], made_of: list[MessageWithParts] | None
) -> None:
    assert title_context(UNNAMED, history) == made_of
    assert title_context(NAMED, history) is None, "a name that someone gave stays"
    assert title_context(CHILD, history) is None, "so does a subagent's"


def test_of_a_prompt_that_only_gives_out_tasks_the_title_is_made_from_what_it_tells_them() -> None:
    context = title_context(UNNAMED, [TASKS])
    assert context is not None and [part.type for part in context[-1].parts] == ["text"]
