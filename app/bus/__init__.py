"""Events on their way from the store to the clients of this process.

Begin at `base.py`: what is published. `memory.py` is the bus of one process, `shared.py` that of several servers with one
database, `merging.py` bounds how often a part is sent, `listener.py` is one client's bounded queue, `frames.py` the bytes of a
server-sent event, and `event_id.py` the id by which a client resumes behind it.
What is stored, and replayed, is in `app.session.replay`.
"""
