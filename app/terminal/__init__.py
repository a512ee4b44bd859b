"""`opensession run` and the commands about sessions: a client of the API, of a server elsewhere or of one within this process.

Begin at `prompt_run.py`. What is shown is decided in `render.py` and `tool_lines.py`, and as JSON in `json_events.py`. In
`asking.py` are permission requests and questions, in `connection.py` both kinds of servers. rich stands in `console.py` alone.
"""
