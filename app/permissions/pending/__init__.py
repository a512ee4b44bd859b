"""Requests that wait for the user, permissions and questions alike: stored, answered in one transaction, or withdrawn.

Begin at `requests.py`. The two kinds of request are in `app.permissions` and `app.permissions.question`. `editor_files.py`: what
waits for an editor.
"""
