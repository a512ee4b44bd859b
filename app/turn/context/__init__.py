"""What the model receives: the history as messages, the system prompt, instruction files, reminders; and their size in tokens.

Begin at `history.py` and `system.py`. `app.turn` decides when to send a request.
"""
