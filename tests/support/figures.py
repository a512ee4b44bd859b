"""Figures of the fault tests, printed at the end of the run."""

from collections.abc import Callable

import pytest

Figure = Callable[[str], None]


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Notes what a test measured, as one line: `figure("20 kills: 0 acknowledged writes lost")`."""

    def note(line: str) -> None:
        request.node.user_properties.append(("figure", f"{request.node.name}: {line}"))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """From the reports of the tests, which come from other processes too."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    figures = {line: None for report in reports for name, line in report.user_properties if name == "figure"}
    if figures:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(str(line))
