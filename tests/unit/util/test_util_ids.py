"""Ids in OpenCode's format: names that ascend within a process, whatever the clock does; and stamps of time."""

import re
import threading

import pytest

from app.util import clock, ids


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last_tick", 0)


@pytest.mark.parametrize(("kind", "prefix"), ids.PREFIXES.items())
def test_an_id_is_a_prefix_twelve_hex_digits_and_fourteen_of_base62(kind: ids.IdKind, prefix: str) -> None:
    for made in (ids.ascending(kind), ids.descending(kind)):
        assert re.fullmatch(rf"{prefix}_[0-9a-f]{{12}}[0-9A-Za-z]{{14}}", made)


def test_ascending_ids_ascend_and_descending_ids_descend() -> None:
    up, down = [ids.ascending("message") for _ in range(500)], [ids.descending("session") for _ in range(500)]
    assert up == sorted(up) and down == sorted(down, reverse=True)


@pytest.mark.usefixtures("set_clock")
def test_they_ascend_when_the_clock_steps_back() -> None:
    ahead = clock.now_ms() / 1000 + 3600
    clock.set_source(lambda: ahead)
    first = ids.ascending("message")
    clock.set_source(lambda: ahead - 1800)
    assert first < ids.ascending("message")


def made_at(seconds: float) -> str:
    """By another server, whose clock says so."""
    clock.set_source(lambda: seconds)
    made, ids._last_tick = ids.ascending("message"), 0
    return made


@pytest.mark.usefixtures("set_clock")
def test_they_follow_those_of_a_server_whose_clock_is_ahead_and_not_what_a_client_made_up() -> None:
    now = clock.now_ms() / 1000
    far, *theirs = [made_at(now + ahead) for ahead in (2 * 24 * 3600, 600, 601, 602)]
    clock.set_source(lambda: now)
    before = ids.ascending("part")
    assert before.removeprefix("prt") < theirs[0].removeprefix("msg")
    ids.follow(far, "msg_the_same", "msg_", "msg_" + "f" * 12 + "\u0661" * 14)
    assert before.removeprefix("prt") < ids.ascending("message").removeprefix("msg") < theirs[0].removeprefix("msg")
    ids.follow(*theirs)
    made = [ids.ascending("message") for _ in range(3)]
    assert [*theirs, *made] == sorted([*theirs, *made])
    ids.follow(theirs[0])
    assert ids.ascending("message") > made[-1], "an older one changes nothing"


def test_threads_never_get_the_same_time() -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend(ids.ascending("part") for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one[:16] for one in made}) == 2000


def test_a_call_id_is_a_ulid_of_now() -> None:
    made = ids.call_id()
    assert re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", made)
    digits = ["0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(character) for character in made[:10]]
    assert abs(sum(digit * 32 ** (9 - at) for at, digit in enumerate(digits)) - clock.now_ms()) < 10_000


def test_iso_stamps_have_three_decimals_and_are_in_utc() -> None:
    assert clock.iso_utc(1_769_153_255_000) == "2026-01-23T07:27:35.000Z"
    assert (clock.iso_utc(1_769_153_255_007), clock.iso_utc(0)) == ("2026-01-23T07:27:35.007Z", "1970-01-01T00:00:00.000Z")
