"""Python plugins and custom tools: importing them, running their hooks within limits.

Begin at `api.py`, what a plugin is written with. Where hooks are called in a turn is in `app.turn.hooks`.
"""
