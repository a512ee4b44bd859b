"""Deltas wait for the changes of their session that were posted before them, and for nothing else."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_parts import Sessions
from storage_parts import HeldDatabase, RecordingBus, Storage, delta, event, open_storage, saying

from app.bus.base import Event, PartDelta
from app.schema.errors import Conflict
from app.session.publisher import SessionPublisher
from app.storage.statements import Statements
from app.storage.writer import Chain, Tx, Writer


def refuse(_tx: Tx) -> None:
    raise Conflict("refused")


@pytest.fixture
def storage(sessions: Sessions) -> Storage:
    sessions.database.gate.clear()
    return sessions.storage


def let_go(storage: Storage) -> None:
    assert isinstance(storage.database, HeldDatabase)
    storage.database.gate.set()


async def test_a_delta_is_published_at_once_while_its_session_has_no_change_on_its_way(storage: Storage) -> None:
    storage.post(saying("other", session_id="ses_other"), "ses_other")
    storage.writer.post(saying("of no session", session_id=None))
    storage.delta(delta("at once"))
    assert storage.bus.order == ["at once"]


async def test_behind_a_failed_change_the_deltas_of_its_chain_alone_are_dropped(storage: Storage) -> None:
    chain = Chain()
    refused = storage.post(saying("refused", then=refuse), chain=chain)
    storage.delta(delta("behind"), chain)
    storage.delta(delta("other"), Chain())
    storage.delta(delta("free"))
    let_go(storage)
    await asyncio.gather(refused, return_exceptions=True)
    storage.delta(delta("later"), chain)
    assert storage.bus.order == ["other", "free"]


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


async def test_what_cannot_be_published_holds_up_nothing_behind_it(sessions: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    bus, database = Failing(), sessions.database
    publisher = SessionPublisher(bus)
    failing = Storage(database, sql := Statements(database.dialect), bus, publisher, Writer(database, sql, publisher))
    stored = failing.post(saying("1", "bad", "2"))
    for text in ("bad delta", "Hel"):
        failing.delta(delta(text))
    await stored
    for text in ("bad at once", "at once"):
        failing.delta(delta(text))
    assert bus.order == ["1", "2", "Hel", "at once"]
    failures = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(failures) == 3 and all("ses_1" in failure for failure in failures)


STEPS = st.tuples(st.sampled_from(["post", "refuse", "delta", "delta", "wait", "store"]), st.integers(1, 3))


@given(st.lists(STEPS))
@settings(deadline=None, max_examples=50)
def test_each_session_hears_its_changes_and_deltas_in_the_order_in_which_they_came(
    migrated_database: Path, steps: list[tuple[str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "opensession.db"
        shutil.copy(migrated_database, path)
        asyncio.run(compare(path, steps))


async def compare(path: Path, steps: list[tuple[str, int]]) -> None:
    """`wait`: what comes now finds a transaction on its way; `store`: everything so far is stored."""
    storage = open_storage(path)
    came: dict[str, list[str]] = {"ses_1": [], "ses_2": [], "ses_3": []}
    for number, (step, session) in enumerate([*steps, ("store", 1)]):
        name, session_id = f"{number}", f"ses_{session}"
        match step:
            case "post":
                storage.post(saying(name, session_id=session_id), session_id)
            case "refuse":
                storage.post(saying(name, session_id=session_id, then=refuse), session_id)
            case "delta":
                storage.delta(delta(name, session_id))
            case "wait":
                await asyncio.sleep(0)
            case "store":
                await storage.writer.barrier()
        if step in ("post", "delta"):
            came[session_id].append(name)
    for session_id, names in came.items():
        heard = zip(storage.bus.order, storage.bus.published, strict=True)
        assert [name for name, one in heard if one.session_id == session_id] == names
    storage.database.close()


# Who hears of it, and who reads meanwhile.


def test_a_delta_is_whose_its_session_was_announced_last() -> None:
    bus = RecordingBus()
    publisher = SessionPublisher(bus)
    for owner in ("anna", "bert", ""):
        publisher.publish(event("told").stored(owner, 1))
        publisher.publish_delta(delta("text"))
        publisher.publish_delta(delta("text", "ses_2"))
    assert [one.owner or "" for one in bus.deltas] == ["anna", "", "bert", "", "", ""]
