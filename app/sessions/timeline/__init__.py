"""A session as the second API tells it: its messages (`SessionMessage`) and its numbered events (`session.next.*`).

Both are made of what is stored already: the journal says when something happened, the stored message says what. The first API's
messages and events are in `app.sessions`. Begin at `service.py`.
"""
