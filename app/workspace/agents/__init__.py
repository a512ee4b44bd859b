"""Agents: the seven built-in ones, those of the configuration, and the prompts (`prompts/`).

Begin at `definitions.py`. How an agent's turn runs is in `app.turn`.
"""
