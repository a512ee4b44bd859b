"""The agent loop: from a prompt until the session is idle again.

Begin at `turn.py` (the loop) and `decide.py` (the next action, pure). `step.py` sends one request to the model, `tool_calls.py`
runs its tool calls, `part_writer.py` stores its output; what all of them share is in `turn_context.py`. What the model receives
is built in `app.context`.
"""
