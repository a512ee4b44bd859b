"""What the model is sent: the history as messages, the system prompt, instruction files, reminders; and how long all of it is.

Begin at `history.py` and `system.py`. When the model is asked is decided in `app.turn`.
"""
