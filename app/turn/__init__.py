"""A prompt's way: what clients ask of a session (`intake/`), who runs what (`runs/`), the agent loop, and `context/`.

Begin at `turn.py` (the loop) and `decide.py` (the next action, pure). `step.py` sends one request to the model,
`tool_calls.py` runs its tool calls, `part_writer.py` stores its output; what all of them share is in `turn_context.py`. What
the model receives is built in `context/`. It imports the rooms below: `app.workspace` (a directory in use), `app.tools`,
`app.providers`, `app.sessions` (what is stored).
"""
