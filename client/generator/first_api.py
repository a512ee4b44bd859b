"""What the client speaks of the description: the first API. The second, `/api/*`, is another face of the same."""

from collections.abc import Iterator

from generator.annotations import Schema

SECOND_API = "/api/"


def first_api(api: Schema) -> Schema:
    paths = {path: methods for path, methods in api["paths"].items() if not path.startswith(SECOND_API)}
    schemas = api["components"]["schemas"]
    reached = _reached(schemas, _named(paths))
    kept = {name: schema for name, schema in schemas.items() if name in reached}
    return {**api, "paths": paths, "components": {**api["components"], "schemas": kept}}


def _reached(schemas: dict[str, Schema], names: set[str]) -> set[str]:
    """With what these name in their turn."""
    reached: set[str] = set()
    while names:
        reached |= names
        names = {inner for name in names for inner in _named(schemas[name])} - reached
    return reached


def _named(value: object) -> set[str]:
    return {reference.rpartition("/")[2] for reference in _references(value)}


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _references(inner)
