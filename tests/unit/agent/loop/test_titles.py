import pytest
from conversation import assistant, file, subtask, text, user

from app.agent.errors import aborted
from app.agent.loop.titles import LONGEST, clean, is_wanted
from app.schema.session import Session, SessionTime
from app.session import title


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
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * (LONGEST + 1), "x" * (LONGEST - 3) + "..."),
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


DEFAULT = title.default(child=False)


def test_the_first_prompt_gives_the_title() -> None:
    assert is_wanted(session(DEFAULT), [user(text())])
    assert is_wanted(session(DEFAULT), [user(subtask())])
    assert is_wanted(session(DEFAULT), [user(text("made", synthetic=True)), user(file())])


def test_later_prompts_give_none() -> None:
    first = user(text())
    assert not is_wanted(session(DEFAULT), [first, assistant(first, text()), user(text())])


def test_after_a_prompt_whose_answer_failed_the_next_gives_the_title() -> None:
    first, answered = user(text()), user(text())
    broken = assistant(first, finish=None, error=aborted())
    assert is_wanted(session(DEFAULT), [first, broken, user(text())])
    assert not is_wanted(session(DEFAULT), [first, broken, answered, assistant(answered, text()), user(text())])


def test_a_prompt_that_only_the_server_wrote_gives_none() -> None:
    assert not is_wanted(session(DEFAULT), [user(text("made", synthetic=True))])


def test_a_name_that_someone_gave_stays() -> None:
    assert not is_wanted(session("Mine"), [user(text())])


def test_a_subagent_s_session_keeps_its_name() -> None:
    assert not is_wanted(session(title.default(child=True), parent="ses_0"), [user(text())])
