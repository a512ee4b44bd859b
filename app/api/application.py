"""FastAPI, with the description of the API as clients are to read it."""

import threading
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from app.api import all_routes
from app.api.documented import described


class Application(FastAPI):
    _describing = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """Made when it is asked for, once, be it by several threads."""
        with self._describing:
            if self.openapi_schema is None:
                all_routes.load()
                _amend(super().openapi())
            assert self.openapi_schema is not None
            return self.openapi_schema


def _amend(description: dict[str, Any]) -> None:
    """FastAPI describes a 422 of every route that takes something. Here such a request is answered with a 400. Models of errors,
    which routes only name, are added."""
    for methods in description["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    schemas = description["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        del schemas[name]
    _, found = models_json_schema([(model, "serialization") for model in described], ref_template="#/components/schemas/{model}")
    description["components"]["schemas"] = dict(sorted({**found["$defs"], **schemas}.items()))
