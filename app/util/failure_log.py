"""Logging for a repeated operation: the first failure with its traceback, then the recovery, nothing in between."""

import logging


class FailureLog:
    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what` is the subject of "… failed"."""
        self._log = log
        self._what = what
        self._failures = 0

    def failed(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1:
            self._log.error("%s failed; retrying, further failures are not logged", self._what, exc_info=error)

    def worked(self) -> None:
        if self._failures:
            self._log.warning("%s works again, after %d failures", self._what, self._failures)
        self._failures = 0
