import logging

import pytest

from app.util.tasks import FailureLog


def test_of_a_row_of_failures_the_first_and_the_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(logging.getLogger("test"), "beating")
    for _ in range(2):
        for _ in range(3):
            failures.failed(OSError("full"))
        for _ in range(3):
            failures.worked()
    logged = [(record.levelname, record.message.split(";")[0], bool(record.exc_info)) for record in caplog.records]
    assert logged == [("ERROR", "beating failed", True), ("WARNING", "beating works again, after 3 failures", False)] * 2
