"""Steering: what one client, such as an editor's plugin, has the terminal clients of its user do.

Begin at `service.py`.
"""
