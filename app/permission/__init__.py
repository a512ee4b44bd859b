"""Permissions: rules, what they decide, and asking a person where they say ask.

Begin at `rules.py` (pure) and `service.py` (asking). `shell/` reads a shell command before it runs.
"""
