"""A prompt's way: what clients ask of a session (`intake/`), who runs what (`runs/`), the agent loop, and `context/`.

Begin at `turn.py` (the loop) and `decide.py` (the next action, pure). `step.py` sends one request to the model, `tool_calls.py`
runs its tool calls, `part_writer.py` stores its output; `turn_context.py` has what these share. `context/` builds what the model
receives. Below are `app.workspace` (a directory in use), `app.tools`, `app.providers`, `app.sessions` (what is stored).
"""
