"""A directory's project: its checkout, its id and its stored record.

Begin at `discovery.py`. A directory in use, with its configuration, is in `app.workspace`.
"""
