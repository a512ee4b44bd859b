"""What the fault tests share: a short and a long form, and figures that are printed at the end of the run."""

from collections.abc import Callable

import pytest

_figures = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_figures] = []


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Notes what a test measured, as one line: `figure("20 kills: 0 acknowledged writes lost")`."""

    def note(line: str) -> None:
        request.config.stash[_figures].append(f"{request.node.name}: {line}")

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if figures := config.stash[_figures]:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)
