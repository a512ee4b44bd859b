"""Tools that a model calls: one module a tool in `builtin/`; what they use in `files/`, `search/`, `process/` and `web/`.

Begin at `base.py` (what a tool is) and `toolbox.py` (which tools a call is offered). Calls are run in `app.turn`.
"""
