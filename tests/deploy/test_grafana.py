"""The dashboard asks for what a server answers: its queries are parsed, and looked up in a real scrape."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from doc_snippets import blocks
from running_app import running_app
from running_server import ROOT
from scrape import Figures, scrape
from turns import bash, configured, pending, priced, say

DASHBOARD = json.loads((ROOT / "deploy" / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
OF_THE_SCRAPER = {"job", "instance"}


def parsed(query: str) -> Any:
    """As Grafana sends it: with its variables filled in."""
    return promql.parse(query.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*"))


def parts(expression: Any) -> Iterator[Any]:
    """The expression and all within it."""
    yield expression
    inner = [getattr(expression, name, None) for name in ("expr", "lhs", "rhs", "param", "vector_selector")]
    for part in [*inner, *getattr(expression, "args", [])]:
        if isinstance(part, promql.Expr):
            yield from parts(part)


def names_and_labels(query: str) -> tuple[set[str], set[str]]:
    names, labels = set(), set()
    for part in parts(parsed(query)):
        if isinstance(part, promql.VectorSelector):
            names.add(str(part.name))
            labels |= {matcher.name for matcher in part.matchers.matchers}
        if isinstance(part, promql.AggregateExpr) and part.modifier is not None:
            labels |= set(part.modifier.labels)
    return names, labels


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """After turns that leave a sample of every metric."""

    async def turns() -> Figures:
        base = tmp_path_factory.mktemp("scraped")
        config = {**priced(cost={"input": 3.0, "output": 15.0}), "permission": {"bash": {"*": "allow", "rm *": "ask"}}}
        script = [[bash("true"), bash("rm none")], [say()]]
        async with running_app(base, workspace=configured(base, config), turns=script, metrics=True) as app:
            session = await app.create_session(title="named")
            prompt = asyncio.create_task(app.prompt(session["id"], "Go"))
            await app.post(f"/permission/{(await pending(app))['id']}/reply", {"reply": "once"})
            await prompt
            return await scrape(app)

    return asyncio.run(turns())


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_panel_asks_for_what_there_is(title: str, query: str, scraped: Figures) -> None:
    names, labels = names_and_labels(query)
    assert names and labels >= OF_THE_SCRAPER, "each is for the chosen job and servers"
    for name in names:
        found = [set(dict(of)) for known, of in scraped.values if known == name]
        assert found, f"{title}: no server has {name}"
        assert labels - OF_THE_SCRAPER <= found[0], f"{title}: {name} has the labels {found[0]}"


def test_every_metric_is_on_it(scraped: Figures) -> None:
    shown = {name for _, query in QUERIES for name in names_and_labels(query)[0]}
    counted = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _ in scraped.values if name.startswith("opensession_")}
    assert counted - {re.sub(r"_bucket$", "", name) for name in shown} == set()


def test_a_query_of_nothing_is_noticed(scraped: Figures) -> None:
    names, labels = names_and_labels('sum by (flavour) (rate(opensession_cakes_total{job=~"$job"}[$__rate_interval]))')
    assert names == {"opensession_cakes_total"} and labels == {"flavour", "job"}
    assert not [known for known, _ in scraped.values if known in names]


def test_its_panels_stand_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_it_asks_the_data_source_that_is_chosen() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables.keys() == {"datasource", "job", "instance"}
    for asking in (*PANELS, *(target for panel in PANELS for target in panel["targets"])):
        assert asking["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_the_documented_configuration_of_prometheus(tmp_path: Path) -> None:
    """By promtool where it is installed."""
    [block] = [block for block in blocks((ROOT / "docs" / "observability.md").read_text()) if block.kind == "yaml prometheus"]
    [job] = yaml.safe_load(block.code)["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["127.0.0.1:4096"]
    assert job["authorization"] == {"credentials_file": "prometheus.token"}
    if promtool := shutil.which("promtool"):
        (tmp_path / "prometheus.token").write_text("token")
        (tmp_path / "prometheus.yml").write_text(block.code)
        checked = subprocess.run([promtool, "check", "config", "prometheus.yml"], cwd=tmp_path, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
