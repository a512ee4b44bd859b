"""Tools that a model calls: one module per tool in `builtin/`; their helpers in `files/`, `search/`, `process/` and `web/`.

Begin at `base.py` (what a tool is) and `toolbox.py` (which tools an agent is offered). `app.turn` runs the calls.
"""
