"""Events on their way from the store to the clients of this process.

Begin at `base.py`: what is published, and the id by which a client resumes behind it. `memory.py` is the bus of one process with
the bounded queue of each client, `shared.py` that of several servers with one database, `frames.py` the bytes of server-sent
events, and what bounds how often a part is sent. What is stored, and replayed, is in `app.sessions.replay`.
"""
