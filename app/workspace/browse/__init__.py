"""The project's files as clients see them: search, listing, contents, status. Read only.

Begin at `allowed_paths.py`, which decides what a client may see. Tools that a model calls are in `app.tools`.
"""
