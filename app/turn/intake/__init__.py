"""What clients ask of a session, up to a stored message and a run: prompts, commands, shell lines, summaries, reverts, deletions.

Begin at `prompts.py` and `intake.py`; the other requests are in `session_actions.py`. `app.turn.runs` has what runs, `app.turn`
the agent loop.
"""
