"""Deltas wait for the changes of their session that were posted before them, and for nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_parts import RecordingBus, delta, event

from app.bus.base import Event, PartDelta
from app.session.sequencer import Sequencer
from app.storage.writer import Chain


@pytest.fixture
def bus() -> RecordingBus:
    return RecordingBus()


@pytest.fixture
def sequencer(bus: RecordingBus) -> Sequencer:
    return Sequencer(bus)


def test_a_delta_is_published_at_once_while_its_session_has_no_pending_change(sequencer: Sequencer, bus: RecordingBus) -> None:
    sequencer.expect(["ses_other"])
    sequencer.delta(delta("at once"))
    assert bus.order == ["at once"]


def test_a_delta_is_published_between_the_changes_that_it_was_streamed_between(sequencer: Sequencer, bus: RecordingBus) -> None:
    sequencer.expect(["ses_1"])
    sequencer.delta(delta("Hel"))
    sequencer.delta(delta("lo"))
    sequencer.expect(["ses_1"])
    sequencer.delta(delta("next"))
    assert bus.order == []
    sequencer.announce(["ses_1"], [event("begins"), event("again")])
    assert bus.order == ["begins", "again", "Hel", "lo"]
    sequencer.announce(["ses_1"], [event("ends")])
    assert bus.order[4:] == ["ends", "next"]


def test_a_delta_waits_for_no_change_of_another_session(sequencer: Sequencer, bus: RecordingBus) -> None:
    sequencer.expect(["ses_1"])
    sequencer.expect(["ses_2"])
    sequencer.delta(delta("Hello"))
    sequencer.announce(["ses_1"], [])
    assert bus.order == ["Hello"]


def test_a_change_of_several_sessions_holds_back_the_deltas_of_each(sequencer: Sequencer, bus: RecordingBus) -> None:
    sequencer.expect(["ses_1", "ses_2"])
    sequencer.delta(delta("one", "ses_1"))
    sequencer.delta(delta("two", "ses_2"))
    sequencer.announce(["ses_1", "ses_2"], [event("both")])
    assert bus.order == ["both", "one", "two"]


def test_behind_a_failed_change_the_deltas_of_its_chain_alone_are_dropped(sequencer: Sequencer, bus: RecordingBus) -> None:
    chain = Chain()
    sequencer.expect(["ses_1"])
    sequencer.delta(delta("behind"), chain)
    sequencer.delta(delta("other"), Chain())
    sequencer.delta(delta("free"))
    chain.failure = ValueError("refused")
    sequencer.withdraw(["ses_1"])
    sequencer.delta(delta("later"), chain)
    assert bus.order == ["other", "free"]


def test_the_latest_announcement_of_a_session_changes_with_its_own_committed_changes(sequencer: Sequencer) -> None:
    with sequencer.counting("ses_1"):
        before = sequencer.latest("ses_1")
        for sessions in (["ses_1"], ["ses_2"], ["ses_1"]):
            sequencer.expect(sessions)
        sequencer.withdraw(["ses_1"])
        sequencer.announce(["ses_2"], [])
        with sequencer.counting("ses_1"):
            assert sequencer.latest("ses_1") == before
        assert sequencer.latest("ses_1") == before, "another reader has come and gone"
        sequencer.announce(["ses_1"], [])
        assert sequencer.latest("ses_1") > before


class Failing(RecordingBus):
    """Raises for what contains `bad`."""

    def publish(self, event: Event) -> None:
        if b"bad" in event.payload:
            raise ValueError("cannot be sent")
        super().publish(event)

    def publish_delta(self, delta: PartDelta) -> None:
        if "bad" in delta.text:
            raise ValueError("cannot be sent")
        super().publish_delta(delta)


def test_what_cannot_be_published_holds_up_nothing_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    bus = Failing()
    sequencer = Sequencer(bus)
    sequencer.expect(["ses_1"])
    sequencer.delta(delta("bad delta"))
    sequencer.delta(delta("Hel"))
    sequencer.announce(["ses_1"], [event("1"), event("bad"), event("2")])
    sequencer.delta(delta("bad at once"))
    sequencer.delta(delta("at once"))
    assert bus.order == ["1", "2", "Hel", "at once"]
    failures = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(failures) == 3 and all("ses_1" in failure for failure in failures)


STEPS = st.tuples(st.sampled_from(["post", "refuse", "delta", "resolve"]), st.sets(st.integers(1, 3), min_size=1))


@given(st.lists(STEPS))
def test_each_session_hears_its_changes_and_deltas_in_the_order_in_which_they_came(steps: list[tuple[str, set[int]]]) -> None:
    bus = RecordingBus()
    sequencer, pending = Sequencer(bus), []
    came: dict[str, list[str]] = {"ses_1": [], "ses_2": [], "ses_3": []}
    for number, (step, numbers) in enumerate([*steps, *[("resolve", {1})] * len(steps)]):
        name, sessions = f"{number}", [f"ses_{session}" for session in numbers]
        if step in ("post", "refuse"):
            pending.append((step, name, sessions))
            sequencer.expect(sessions)
        elif step == "delta":
            sequencer.delta(delta(name, sessions[0]))
        elif pending:
            posted, name, sessions = pending.pop(0)
            if posted == "post":
                sequencer.announce(sessions, [event(name, session) for session in sessions])
            else:
                sequencer.withdraw(sessions)
            continue
        for session in {"post": sessions, "delta": sessions[:1]}.get(step, ()):
            came[session].append(name)
    for session, names in came.items():
        assert [name for name, one in zip(bus.order, bus.published, strict=True) if one.session_id == session] == names
