"""Language servers of a directory: their errors in a file after an edit, and the symbols that they know.

Begin at `servers.py`: those of one directory. `kinds.py` is the table of the well-known ones, `server.py` one that runs and how
long calls wait for it, `client.py` its program, spoken to by pygls, which only this module imports, with the first server.
"""
