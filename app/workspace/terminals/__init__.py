"""Terminals that clients type into (`/pty`): a program in a pseudo-terminal, its output, and who may see it.

Begin at `terminals.py`. Programs are confined by `app.project.sandbox`, as commands are. `app.cli` has the output of `opensession
run`, which is another thing.
"""
