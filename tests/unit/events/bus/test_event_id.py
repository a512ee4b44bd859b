"""The ids that clients remember events by."""

from bus_parts import named

from app.events.bus.base import NEVER_GIVEN, EventId, read_cursor
from app.users.tokens import UserCursors


def wire(event_id: EventId) -> str:
    return event_id.wire(None).decode()


def test_ids_are_the_same_each_time_and_ascend_in_the_order_in_which_events_are_sent() -> None:
    assert wire(EventId(7)) == wire(named("t", seq=7).id()) == "evt_00000000000070000000000000"
    sent = [make(seq) for seq in (7, 8, 10**15) for make in (EventId, EventId.behind, EventId.behind)]
    texts = [wire(event_id) for event_id in sent]
    assert sorted(set(texts)) == texts and {len(text) for text in texts} == {30}


def test_an_event_that_is_not_of_the_journal_is_behind_what_was_sent_before_it() -> None:
    heartbeat, greeting = named("t", journaled=False), named("t", journaled=False, seq=9)
    assert heartbeat.id(5).seq == 5
    assert greeting.id(5).seq == 9 and greeting.id(5) != greeting.id(5)
    assert EventId.behind(-1).seq == 0 and len(wire(EventId.behind(2**62))) == 30


def test_a_users_ids_are_sealed_and_those_of_the_journal_do_not_change() -> None:
    cursors = UserCursors((b"k" * 32,), "anna")
    first, second = EventId(7).wire(cursors), EventId(7).wire(cursors)
    assert first == second and first.startswith(b"evt_") and cursors.open(first.decode()) == EventId(7)
    moment, later = EventId.behind(7).wire(cursors), EventId.behind(7).wire(cursors)
    assert len({first, moment, later}) == 3 and cursors.open(later.decode()).seq == 7
    assert read_cursor(first.decode()).seq == NEVER_GIVEN == UserCursors((b"k" * 32,), "bert").open(first.decode()).seq
