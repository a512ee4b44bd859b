"""Default titles, which the first turn replaces, and titles of forks."""

import re

from app.util import clock

_NEW, _CHILD = "New session - ", "Child session - "
_DEFAULT = re.compile(rf"({_NEW}|{_CHILD})\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z")
_FORK = re.compile(r"(?P<title>.*) \(fork #(?P<number>\d+)\)", re.DOTALL)


def default(*, child: bool) -> str:
    return (_CHILD if child else _NEW) + clock.iso_utc(clock.now_ms())


def is_default(title: str) -> bool:
    return _DEFAULT.fullmatch(title) is not None


def of_fork(title: str) -> str:
    """`T` → `T (fork #1)` → `T (fork #2)`."""
    fork = _FORK.fullmatch(title)
    if fork is None:
        return f"{title} (fork #1)"
    return f"{fork['title']} (fork #{int(fork['number']) + 1})"
