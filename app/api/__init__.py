"""The HTTP API: one module a resource. A route parses, calls one service and returns; FastAPI is imported here and in main only.

Begin at `message.py` (prompts) and `event.py` (the event stream). What routes call is in `services.py`.
"""

from pydantic import BaseModel


def _import_fastapi() -> None:
    """Its models, which describe an API, are built when the description is asked for: at each start they would take a twentieth
    of the time. Pydantic lets a class alone choose that, so it is every class's choice for as long as this import takes."""
    BaseModel.model_config["defer_build"] = True
    import fastapi  # noqa: F401

    del BaseModel.model_config["defer_build"]


_import_fastapi()
