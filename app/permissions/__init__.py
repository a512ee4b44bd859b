"""Permissions: rules, their evaluation, and requests to the user where a rule says `ask`.

Begin at `rules.py` (pure) and `service.py` (asking). `shell/` reads a shell command before it runs; `pending_requests.py` has the
requests that wait for an answer, `questions.py` the model's questions, `editor_files.py` the files that wait for an editor. The
package imports `app.project`, `app.record` and packages below.
"""
