"""Events on their way from the store to the clients of this process.

Begin at `base.py`: events, and the id by which a client resumes after one. `memory.py` is the bus of one process, `listener.py`
the bounded queue of each client, `shared.py` the bus of several servers with one database, `frames.py` the bytes of server-sent
events, and the limit on how often a part is sent. `app.sessions.replay` has stored events.
"""
