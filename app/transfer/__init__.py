"""Sessions as documents: written for other servers and for people, read from OpenCode and other servers of this kind.

Begin at `document.py`, which says what a document is. `importing.py` stores one; everything else leads to it or away from it.
"""
