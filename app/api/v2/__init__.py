"""OpenCode's second API, `/api/*`: another face of the services that the first API's routes call. A route names its place by
`location`, answers `{data}` or `{location, data}`, and errors as `{_tag, message, …}`.

Begin at `shapes.py`, what its routes share; `errors.py` has the errors, `all_routes.py` the modules.
"""
