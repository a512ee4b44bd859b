"""Permissions: rules, their evaluation, and requests to the user where a rule says `ask`.

Begin at `rules.py` (pure) and `service.py` (asking). `shell/` reads a shell command before it runs.
"""
