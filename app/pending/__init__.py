"""Requests that wait for a person, permissions and questions alike: stored, answered in one transaction, withdrawn.

Begin at `requests.py`. What is asked is in `app.permission` and `app.question`.
"""
