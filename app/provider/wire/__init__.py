"""What the wire formats share: the connection, server-sent events, open blocks, tool inputs, files and errors."""
