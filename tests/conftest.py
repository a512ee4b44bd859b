"""What all tests share: an environment that configures nothing, and how they are spread over processes."""

import gc
import os
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pytest
from figures import figure, pytest_terminal_summary

from app.util import clock

__all__ = ["figure", "pytest_terminal_summary"]

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from postgres import PostgresServer
    from running_app import RunningApp
    from webhook_receiver import Receiver

CONFIGURING = ("OPENSESSION_", "OPENCODE_", "XDG_", "OTEL_")

WAITING = ("replicas", "faults", "page", "clients", "client_package", "deploy", "docs")
COMPUTING = ("flows", "api", "wire", "migrations", "architecture", "unit")
"""Both the slowest first: a slow file that starts last keeps one process busy while the others have nothing left to do."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More processes than cores, as many tests wait. One or two files are run by this process: another takes seconds to start."""
    files = [argument.partition("::")[0] for argument in config.args]
    if len(files) <= 2 and all(file.endswith(".py") for file in files):
        return 0
    return min(2 * (os.cpu_count() or 1), 8)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that wait and files that compute take turns, so that the cores have something to do all the time."""
    if hasattr(config, "workerinput"):
        tests = config.rootpath / "tests"
        files = dict.fromkeys(item.path for item in items)
        kinds = [[file for name in names for file in files if tests / name in file.parents] for names in (WAITING, COMPUTING)]
        order = {file: place for place, file in enumerate(chain.from_iterable(zip_longest(*kinds)))}
        items.sort(key=lambda item: order.get(item.path, 0))


def pytest_collection_finish() -> None:
    """All that is imported by now stays: it need not be looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Apart from the tests' own directories: pytest looks through all beside a new one to number it."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, homes: Path) -> Iterator[Path]:
    """No flags, no keys, and an empty home; the keys and configuration of whoever runs the tests change nothing. A clock that the
    test has set is the machine's again."""
    for name in os.environ:
        if name.startswith(CONFIGURING) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    home = Path(mkdtemp(dir=homes))
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(home))
    yield home
    clock.set_source()


@pytest.fixture(scope="session")
def postgres() -> Iterator["PostgresServer"]:
    """A server for all tests of this process; each makes databases of its own."""
    from postgres import running_postgres

    with running_postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> dict[str, str]:
    """A server's settings that name a new database of its own."""
    if request.param == "sqlite":
        return {}
    from postgres import migrated

    return {"database_url": migrated(request.getfixturevalue("postgres"))}


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from chromium import chromium

    with chromium() as running:
        yield running


@pytest.fixture
def receiver() -> Iterator["Receiver"]:
    from webhook_receiver import webhook_receiver

    with webhook_receiver() as running:
        yield running


@pytest.fixture
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator["RunningApp"]:
    """A server in this process, whose model says `ok` to everything. A module's `SERVED_WITH` has other options of running_app,
    and the `config` of the workspace."""
    from running_app import running_app
    from turns import configured

    options = dict(getattr(request.module, "SERVED_WITH", {}))
    if config := options.pop("config", None):
        options["workspace"] = configured(tmp_path, config)
    async with running_app(tmp_path, **options) as running:
        yield running


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Where a model waits until the test has seen what it wanted to see."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database file, migrated once; a test copies it."""
    from app.record.engine import make_engine
    from app.record.migrate import upgrade

    path = tmp_path_factory.mktemp("migrated") / "opensession.db"
    engine = make_engine(f"sqlite:///{path}")
    upgrade(engine)
    engine.dispose()
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test has logged goes from its process to the one that reports as UTF-8, whatever characters are in it."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
