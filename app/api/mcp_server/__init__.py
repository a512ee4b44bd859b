"""The sessions of this server as tools and resources of the Model Context Protocol, for other agents. Begin at `server.py`.

Each tool (`tools.py`) is a few requests to the API with the caller's own login, so that the API's rules hold for it. `turn.py`
follows a turn until it ends or asks something; `resources.py` has transcripts and diffs.
"""
