"""The diagram and the table of packages in docs/architecture.md are those of the code and of the import contracts."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from source_trees import APP, ROOT, imported_by, trees_below

PAGE = (ROOT / "docs" / "architecture.md").read_text()
EVERYWHERE = ("schema", "util")
"""Packages that any other may import; left out of the diagram."""

Edges = Mapping[str, frozenset[str]]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def packages(folder: Path) -> set[str]:
    return {init.parent.name for init in folder.glob("*/__init__.py")}


def imports(package: str) -> set[str]:
    """The other packages that one imports."""
    names = {name for tree in trees_below(APP / package).values() for name in imported_by(tree) if name.startswith("app.")}
    return {name.split(".")[1] for name in names} - {package}


def below(package: str, edges: Edges) -> set[str]:
    """All that it imports, be it by way of others."""
    return {found for edge in edges[package] for found in {edge, *below(edge, edges)}}


def without_implied(edges: Edges) -> Edges:
    """Without those that follow from others: a → c beside a → b → c."""
    return {
        package: frozenset(edge for edge in found if not any(edge in below(other, edges) for other in found - {edge}))
        for package, found in edges.items()
    }


@cache
def edges_of_code() -> Edges:
    shown = packages(APP) - set(EVERYWHERE)
    return without_implied({package: frozenset(shown & imports(package)) for package in shown})


def diagram(edges: Edges) -> str:
    lines = [f"    {package} --> {' & '.join(sorted(found))}" for package, found in sorted(edges.items()) if found]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```"])


def layers(contract: str) -> dict[str, int]:
    """Each module of a contract with the number of its layer, from the top."""
    (found,) = (each["layers"] for each in CONTRACTS if each["id"] == contract)
    return {name: number for number, layer in enumerate(found) for name in layer.split(" | ")}


def rank(package: str) -> int:
    return layers("downward")[f"app.{package}"]


def test_the_diagram_is_the_one_of_the_code() -> None:
    wanted = diagram(edges_of_code())
    assert wanted in PAGE, f"docs/architecture.md must hold this:\n{wanted}"


def test_each_package_stands_in_the_table_from_the_top_layer_down() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(../app/\w+\) \|", PAGE, re.MULTILINE)
    assert set(rows) == packages(APP)
    assert rows == sorted(rows, key=rank)


def test_its_edges_point_downward_as_the_contract_has_it() -> None:
    upward = [(a, b) for a, found in edges_of_code().items() for b in found if rank(a) >= rank(b)]
    assert upward == []


def test_every_package_stands_in_a_contract() -> None:
    assert {f"app.{name}" for name in packages(APP)} <= layers("downward").keys()
    assert {f"app.tools.{name}" for name in packages(APP / "tools")} <= layers("tools").keys()
    assert {f"app.providers.{name}" for name in packages(APP / "providers")} <= layers("providers").keys()


def test_an_edge_that_follows_from_others_is_left_out() -> None:
    edges = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset[str]()}
    assert without_implied(edges) == {**edges, "a": frozenset("b")}
