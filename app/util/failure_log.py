"""Logging for a repeated operation: the first failure with its traceback, then the recovery, nothing in between."""

import logging


class FailureLog:
    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what` is the subject of "… failed"."""
        self._log = log
        self._what = what
        self.count = 0

    def failed(self, error: BaseException) -> None:
        self.count += 1
        if self.count == 1:
            self._log.error("%s failed; retrying, further failures are not logged", self._what, exc_info=error)

    def worked(self) -> None:
        if self.count:
            self._log.warning("%s works again, after %d failures", self._what, self.count)
        self.count = 0
