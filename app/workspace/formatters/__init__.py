"""Formatters: programs that put a file into the project's form after a tool has written it. Begin at `formatters.py`."""
