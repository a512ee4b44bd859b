"""What differs between two descriptions of the API: `python scripts/compare_openapi.py before.yaml after.yaml`.

Whatever a client is built by counts: routes, operation ids, parameters, bodies, answers, schemas. The order in which things stand
does not, nor do texts, which `--texts` compares too. Ends with 1 if something differs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

TEXTS = ("summary", "description", "title")
METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")


def without_texts(value: Any) -> Any:
    """A property may be named `description`: only texts are dropped."""
    if isinstance(value, dict):
        return {key: without_texts(each) for key, each in value.items() if key not in TEXTS or not isinstance(each, str)}
    return [without_texts(each) for each in value] if isinstance(value, list) else value


def facts(description: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each by the place where it stands."""
    for path, item in description["paths"].items():
        for method in METHODS:
            if method in item:
                yield from operation_facts(f"{method.upper()} {path}", item[method])
    for kind, named in description.get("components", {}).items():
        for name, schema in named.items():
            yield f"{kind} {name}", schema


def operation_facts(at: str, operation: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for parameter in operation.get("parameters", ()):
        yield f"{at} parameter {parameter['in']} {parameter['name']}", parameter
    for status, answer in operation.get("responses", {}).items():
        yield f"{at} answer {status}", answer
    for key, value in operation.items():
        if key not in ("parameters", "responses"):
            yield f"{at} {key}", value


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    first, second = dict(facts(before)), dict(facts(after))
    gone = [f"- {at}" for at in first if at not in second]
    new = [f"+ {at}" for at in second if at not in first]
    changed = [f"~ {at}: {first[at]} -> {second[at]}" for at in first if at in second and first[at] != second[at]]
    return gone + new + changed


def main() -> int:
    texts = "--texts" in sys.argv
    paths = [each for each in sys.argv[1:] if each != "--texts"]
    before, after = (yaml.safe_load(Path(path).read_text("utf-8")) for path in paths)
    found = differences(before, after) if texts else differences(without_texts(before), without_texts(after))
    print("\n".join(found) or "the same")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
