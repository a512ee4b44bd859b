"""`opencode.json` and all that is configured beside it: layers of files, agents, commands and skills in Markdown, flags.

Begin at `loader.py`. Settings of the server itself (`OPENSESSION_*`) are in `app.settings`.
"""
