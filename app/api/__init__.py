"""The HTTP API: one module a resource. A route parses, calls one service and returns; FastAPI is imported here and in main only.

Begin at `message.py` (prompts) and `event.py` (the event stream). What routes call is in `services.py`.
"""

from pydantic import BaseModel


def _import_fastapi() -> None:
    """FastAPI's models describe an API. They are built when the description is asked for, because building them takes a twentieth
    of a start. Pydantic takes that choice from each class, so the base of all has it while FastAPI is imported."""
    BaseModel.model_config["defer_build"] = True
    import fastapi.utils

    del BaseModel.model_config["defer_build"]
    # It would load Pydantic's first version, and ask that of the type of each parameter.
    vars(fastapi.utils)["annotation_is_pydantic_v1"] = lambda annotation: False


_import_fastapi()
