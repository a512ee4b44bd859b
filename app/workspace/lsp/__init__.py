"""Language servers of a directory: what they say of a file after an edit, and what they know of symbols.

Begin at `servers.py`: those of one directory. `kinds.py` is the table of the well-known ones, `server.py` one that runs and how
long it is waited for, `client.py` its program, spoken to by pygls: the one module that imports it, loaded with the first server.
"""
