"""The HTTP API: one module a resource. A route parses, calls one service and returns; FastAPI is imported here and in main only.

Begin at `message.py` (prompts) and `event.py` (the event stream). What routes are given is in `deps.py`, who may use them in
`roles.py`, what they may answer instead in `errors.py`; `ROUTERS` in `app.main` has them all.
"""
