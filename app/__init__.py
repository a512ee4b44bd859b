"""Opensession: the OpenCode session system as an HTTP and SSE server."""

__version__ = "0.1.0"
