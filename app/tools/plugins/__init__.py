"""Python plugins and custom tools: importing them, running their hooks within limits.

Begin at `api.py`, which plugins are written with. `app.turn.hooks` calls the hooks of a turn.
"""
