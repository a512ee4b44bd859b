"""Python's clock of another machine: a process that has this directory in its PYTHONPATH is off by CLOCK_SHIFT seconds."""

import os
import time

_SHIFT = float(os.environ.get("CLOCK_SHIFT", "0"))
_time, _time_ns = time.time, time.time_ns

time.time = lambda: _time() + _SHIFT
time.time_ns = lambda: _time_ns() + int(_SHIFT * 1e9)
