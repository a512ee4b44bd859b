"""The log of something that is tried again and again: its first failure with the traceback, its recovery, nothing in between."""

import logging


class FailureLog:
    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what` completes the sentence "… failed"."""
        self._log = log
        self._what = what
        self._failures = 0

    def failed(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1:
            self._log.error("%s failed; it is tried again, which is not logged until it works", self._what, exc_info=error)

    def worked(self) -> None:
        if self._failures:
            self._log.warning("%s works again, after %d failures", self._what, self._failures)
        self._failures = 0
