"""Permissions: rules, their evaluation, and requests to the user where a rule says `ask`.

Begin at `rules.py` (pure) and `service.py` (asking). `shell/` reads a shell command before it runs; requests that wait for an
answer are in `pending/`, a model's questions in `question/`. It imports `app.project`, `app.record` and what is below.
"""
