"""Shared by the wire formats: connection, server-sent events, open blocks, tool inputs, files and errors."""
