"""Whether the fault tests run in their long form."""

import os

LONG = bool(os.environ.get("OPENSESSION_LONG"))
"""`make faults` sets it: more repetitions of the same tests, and time limits as strict as promised."""

SLACK = 1 if LONG else 5
"""By what a time limit is multiplied: the short form runs beside other tests, with more processes than cores."""
