import pytest
from conversation import assistant, compaction, file, subtask, text, user

from app.schema.message import MessageWithParts
from app.schema.session import Session, SessionTime
from app.sessions.fork import default_title
from app.turn.ends import aborted
from app.turn.titles import MAX_LENGTH, clean, title_context


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
        ("x" * MAX_LENGTH, "x" * MAX_LENGTH),
        ("x" * (MAX_LENGTH + 1), "x" * (MAX_LENGTH - 3) + "..."),
    ],
)
def test_a_title_is_the_first_line_that_says_something(answer: str, expected: str | None) -> None:
    assert clean(answer) == expected


def session(name: str, parent: str | None = None) -> Session:
    return Session(
        id="ses_1",
        slug="a-b",
        project_id="p",
        directory="/",
        parent_id=parent,
        title=name,
        version="1",
        time=SessionTime(created=1, updated=1),
    )


DEFAULT = default_title(child=False)


def titled(history: list[MessageWithParts], of: Session | None = None) -> MessageWithParts | None:
    """The prompt that a title is for."""
    context = title_context(of or session(DEFAULT), history)
    return context[-1] if context else None


def test_a_title_is_for_the_first_prompt_also_when_it_is_requested_later() -> None:
    first, synthetic = user(text()), user(text("made", synthetic=True))
    assert titled([synthetic, first]) is first
    assert title_context(session(DEFAULT), [synthetic, first, assistant(first, text()), user(text())]) == [synthetic, first]


def test_a_file_is_a_prompt_and_what_the_server_writes_is_none() -> None:
    asked = user(text("made", synthetic=True), file())
    assert titled([asked]) is asked
    assert titled([user(text("made", synthetic=True)), user(compaction())]) is None


def test_of_a_prompt_that_only_gives_out_tasks_the_title_is_made_from_what_it_tells_them() -> None:
    prompt = titled([user(subtask(), subtask())])
    assert prompt is not None and [part.type for part in prompt.parts] == ["text"]


def test_after_a_prompt_whose_answer_failed_the_next_gives_the_title() -> None:
    first, second = user(text()), user(text())
    broken = assistant(first, finish=None, error=aborted())
    assert titled([first, broken]) is None
    assert titled([first, broken, second, assistant(second, text()), user(text())]) is second


def test_a_name_that_someone_gave_stays() -> None:
    assert titled([user(text())], session("Mine")) is None


def test_a_subagent_s_session_keeps_its_name() -> None:
    assert titled([user(text())], session(default_title(child=True), parent="ses_0")) is None
