"""Permissions: rules, their evaluation, and requests to the user where a rule says `ask`.

Begin at `rules.py` (pure) and `service.py` (asking). `shell/` reads a shell command before it runs; `pending_requests.py` has
what waits for an answer, `questions.py` what the model asks, `editor_files.py` what waits for an editor. It imports
`app.project`, `app.record` and what is below.
"""
