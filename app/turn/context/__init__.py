"""What the model receives: the history as messages, the system prompt, reminders; and their size in tokens.

Begin at `history.py` and `system.py`. `app.turn` decides when to send a request, `app.workspace.instructions` has the
instruction files.
"""
