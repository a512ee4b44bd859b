"""Whether the fault tests run in their long form."""

import os

LONG = bool(os.environ.get("OPENSESSION_LONG"))
"""`make faults` sets it: more repetitions of the same tests."""
