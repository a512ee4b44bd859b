"""What a server does not import or make when it starts: each takes megabytes or a tenth of a second, and can wait for its use."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

APP = Path(__file__).parents[2] / "app"
WHEN_USED = {
    "alembic": "a database that is new, or of an older revision",
    "anthropic": "a directory whose models it asks",
    "app.api.absent": "a request for what is not there",
    "app.api.v2.all_routes": "a request of the second API",
    "app.permission.shell.analysis": "a shell command",
    "app.provider.scripted.rules": "a model's first request",
    "app.schema.timeline": "a request of the second API",
    "app.transfer.imports": "an export or import",
    "bs4": "a page that is fetched",
    "genai_prices": "the catalogue of models",
    "http.cookiejar": "a page that is fetched",
    "httpx2": "whatever is fetched",
    "markdown_it": "the terminal",
    "markdownify": "a page that is fetched",
    "mcp": "an MCP server",
    "openai": "a directory whose models it asks",
    "prometheus_client": "metrics",
    "psycopg": "PostgreSQL",
    "pydantic.v1": "nothing",
    "redis": "several servers",
    "rich.markdown": "the terminal",
    "tree_sitter": "a shell command",
    "yaml": "the API's description",
}
_START = """
import json, sys
import app.cli, app.http_server
from app.api.json_route import StrictRoute
from app.api.routes_below import RoutesBelow
from app.main import create_app
from app.settings import Settings
routes = create_app(Settings()).router.routes
found = [route for route in routes if isinstance(route, StrictRoute)]
made = [route.operation_id for route in found if hasattr(route, "dependant")]
next(route for route in found if route.operation_id == "session.list").described()
modules = [*sys.modules]
later = [(route.path, each.paths) for each in routes if isinstance(each, RoutesBelow) for route in each.routes]
print(json.dumps({"modules": modules, "routes": [route.operation_id for route in found], "made": made, "later": later}))
"""


def start(data: Path) -> Any:
    environment = {"PATH": os.environ["PATH"], "HOME": str(data), "OPENSESSION_DATA_DIR": str(data)}
    done = subprocess.run([sys.executable, "-c", _START], env=environment, cwd=data, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The first in a data directory, which makes the database, and the next."""
    data = tmp_path_factory.mktemp("data")
    return [start(data), start(data)]


def test_what_is_seldom_needed_is_not_imported_at_start(starts: list[Any]) -> None:
    first, later = (each["modules"] for each in starts)
    assert "app.main" in first and "app.main" in later
    assert [name for name in WHEN_USED if name in first] == ["alembic"]
    assert [name for name in WHEN_USED if name in later] == []


def test_routes_are_made_with_their_first_requests(starts: list[Any]) -> None:
    assert all("session.list" in each["routes"] for each in starts)
    assert [each["made"] for each in starts] == [[], []]


def test_a_route_that_is_loaded_later_is_found_by_its_path(starts: list[Any]) -> None:
    later = starts[1]["later"]
    assert len(later) > 100
    assert [path for path, beginnings in later if not path.startswith(tuple(beginnings))] == []
