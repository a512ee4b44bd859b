"""Webhooks: events of the journal as signed HTTP requests, by the Standard Webhooks specification.

Begin at `worker.py`, which delivers one webhook: one request at a time, in the order of the journal, each again until it is
accepted. `dispatcher.py` decides which webhooks this server delivers, `service.py` stores them. For users: docs/webhooks.md.
"""
