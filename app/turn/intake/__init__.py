"""What clients ask of a session, up to a stored message and a run: prompts, commands, shell lines, summaries, reverts.

Begin at `prompts.py`; the other requests are in `session_actions.py`. What runs is in `app.turn.runs`, the agent loop in
`app.turn`.
"""
