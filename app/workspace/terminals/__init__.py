"""Terminals that clients type into (`/pty`): a program in a pseudo-terminal, what it has printed, and who may see it.

Begin at `terminals.py`. Programs are confined by `app.project.sandbox`, as commands are. What `opensession run`
prints is another thing: `app.cli`.
"""
