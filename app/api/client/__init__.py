"""The API as clients use it, for the commands and for MCP, which speak to a server as any client does. Begin at `client.py`.

`asgi_transport.py` reaches a server in this process, with all its rules.
"""
