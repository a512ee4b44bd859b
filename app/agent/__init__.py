"""Agents: the seven built in and those of the configuration, and the texts that they are prompted with (`prompts/`).

Begin at `definitions.py`. How an agent's turn runs is in `app.turn`.
"""
