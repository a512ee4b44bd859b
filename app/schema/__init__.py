"""The vocabulary: Pydantic models of sessions, messages, parts, events, permissions, configuration and errors. No behaviour.

Begin at `message.py`, `part.py` and `event.py`. Names on the wire are OpenCode's.
"""
