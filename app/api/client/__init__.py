"""The API as clients use it, for what speaks to a server as they do: commands, and MCP. Begin at `client.py`.

`asgi_transport.py` reaches a server in this process, with all its rules; `prompt_outcome.py` tells when a prompt is answered.
"""
