"""What clients ask of a session, up to a stored message and a run: prompts, commands, shell lines, summaries, reverts, deletions.

Begin at `prompts.py` and `intake.py`; `prompt_parts.py` reads the files that a prompt names, `session_actions.py` has the other
requests. `app.turn.runs` has what runs, `app.turn` the agent loop.
"""
