"""Where things live, the log of what clients say, and who a server is."""

import logging
import os
import socket
import subprocess
from pathlib import Path

import pytest

from app.util import environment, processes
from app.util.secrets import client_log

XDG = {
    environment.data_home: ("XDG_DATA_HOME", ".local/share"),
    environment.config_home: ("XDG_CONFIG_HOME", ".config"),
    environment.state_home: ("XDG_STATE_HOME", ".local/state"),
}


@pytest.mark.parametrize("place", XDG)
def test_a_folder_is_below_home_unless_its_variable_says_otherwise(
    place: object, plain_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, below = XDG[place]  # type: ignore[index]
    assert place() == plain_environment / below  # type: ignore[operator]
    monkeypatch.setenv(variable, "/elsewhere")
    assert place() == Path("/elsewhere")  # type: ignore[operator]


def test_the_configuration_is_where_opencode_users_have_it(plain_environment: Path) -> None:
    assert environment.opencode_config_dir() == plain_environment / ".config/opencode"


def test_a_clients_log_entry_is_one_bounded_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "client"):
        client_log("svc", "warn", "line\r\nINFO forged entry", {"a": 1})
        client_log("svc", "debug", "x" * 100_000, None)
    first, second = caplog.records
    assert first.levelno == logging.WARNING and "\n" not in first.getMessage() and "\r" not in first.getMessage()
    assert "'a': 1" in first.getMessage() and len(second.getMessage()) <= 4000


def test_this_process_lives() -> None:
    assert processes.is_gone(processes.this_process()) is False


def test_two_names_of_one_process_differ() -> None:
    assert processes.this_process() != processes.this_process()


def test_a_process_that_ended_is_gone() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert processes.is_gone(f"{processes.pid_namespace()}:{process.pid}:123:x") is True


def test_a_later_process_with_the_same_number_is_another() -> None:
    assert processes.is_gone(f"{processes.pid_namespace()}:{os.getpid()}:1:x") is True


@pytest.mark.parametrize(
    "name", ["elsewhere:1:1:x", f"{socket.gethostname()}:1:1:x", f"{socket.gethostname()}/1:1:1:x", "", "no colons", "a:b:c"]
)
def test_of_a_process_of_another_machine_or_container_nothing_is_known(name: str) -> None:
    assert processes.is_gone(name) is None
