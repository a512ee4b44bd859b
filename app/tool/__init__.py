"""Tools that a model calls: one module per tool or kind of tools in `builtin/`; what they share stands beside.

Begin at `base.py` (what a tool is) and `toolbox.py` (which tools an agent is offered). `app.turn` runs the calls.
"""
