"""`opensession doctor` on what several servers share."""

import asyncio
from pathlib import Path

import pytest
from postgres import PostgresServer, migrated
from redis_server import running_redis
from running_app import running_app
from running_server import free_port
from sqlalchemy import make_url, text

from app.cli import checks
from app.settings import Settings
from app.storage import maintenance
from app.storage.engine import make_engine


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return migrated(postgres)


def reported(data_dir: Path, url: str | None, redis_url: str | None = None) -> list[str]:
    data_dir.mkdir(exist_ok=True)
    settings = Settings(data_dir=data_dir, database_url=url, redis_url=redis_url)
    engine = make_engine(settings.resolved_database_url)
    try:
        return [f"{each.level} {each.subject}: {each.text}" for each in checks.check_servers(settings, engine)]
    finally:
        engine.dispose()


def test_all_is_well(tmp_path: Path, url: str) -> None:
    with running_redis() as redis:
        found = reported(tmp_path / "data", url, redis.url)
    for line, start in zip(
        found,
        (
            "fine PostgreSQL: PostgreSQL ",
            "fine clocks: this machine's and the database's differ by 0.0",
            "fine Redis: Redis ",
            f"fine volume: {tmp_path}/data: no server runs",
            "fine volume: locks work",
        ),
        strict=True,
    ):
        assert line.startswith(start)
    assert list((tmp_path / "data").iterdir()) == [tmp_path / "data" / "volume"]


def test_redis_that_does_not_answer_and_none(tmp_path: Path, url: str) -> None:
    assert any("fault Redis: Redis at 127.0.0.1:" in line for line in reported(tmp_path, url, f"redis://127.0.0.1:{free_port()}"))
    assert any("note Redis: none is named" in line for line in reported(tmp_path, url))


async def test_servers_that_see_another_directory_are_named(tmp_path: Path, url: str) -> None:
    async with running_app(tmp_path, database_url=url):
        same = await asyncio.to_thread(reported, tmp_path / "data", url)
        other = await asyncio.to_thread(reported, tmp_path / "elsewhere", url)
    assert any(line.endswith("1 running servers see it too") for line in same)
    assert any(line.startswith("fault volume: ") and "mount the same volume" in line for line in other)


def test_a_database_that_is_read_only(tmp_path: Path, url: str) -> None:
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {make_url(url).database} SET default_transaction_read_only = on"))
    engine.dispose()
    assert "is read-only: name the primary" in reported(tmp_path, url)[0]


@pytest.mark.parametrize(("ahead", "said"), [(0.4, "fine clocks"), (90.0, "note clocks: the database's is 90 s ahead of")])
def test_clocks_that_differ(ahead: float, said: str, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "clock_ahead_seconds", lambda _: ahead)
    assert reported(tmp_path, url)[1].startswith(said)


def test_locks_that_do_not_work(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_TRY_LOCK", "")
    assert reported(tmp_path, url)[-1].startswith("fault volume: ")


def test_an_empty_database_is_no_fault(tmp_path: Path, postgres: PostgresServer) -> None:
    assert not any(line.startswith("fault") for line in reported(tmp_path, postgres.new_database()))


def test_on_sqlite_nothing_is_shared(tmp_path: Path) -> None:
    assert reported(tmp_path, None) == []
    assert reported(tmp_path, None, "redis://cache") == [
        "note Redis: not used: it connects servers of one PostgreSQL (OPENSESSION_DATABASE_URL)"
    ]
