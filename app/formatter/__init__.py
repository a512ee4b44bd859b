"""Formatters: programs that put a file into the project's form after a tool has written it.

Begin at `formatters.py`: those of one directory. `kinds.py` is the table of the well-known ones and when a project uses them.
"""
