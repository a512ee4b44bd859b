"""Writes the generated part of the client: models and operations of openapi.yaml, and the sync client. Begin at `__main__.py`."""
