"""The agent loop: from a prompt until the session is idle again.

Begin at `turn.py` (the loop) and `decide.py` (what comes next, pure); `step.py` asks the model once, `tool_calls.py` runs what it
calls, `part_writer.py` stores what it says. What the model is sent is in `app.context`.
"""
