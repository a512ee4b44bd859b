"""The HTTP API: one module a resource. A route parses, calls one service and returns; FastAPI is imported here and in main only.

Begin at `message.py` (prompts) and `event.py` (the event stream). `deps.py` has what routes are given, `roles.py` who may use
them, `errors.py` their errors; `ROUTERS` in `app.main` lists all routers.
"""
