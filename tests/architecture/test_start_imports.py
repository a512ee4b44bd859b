"""What a server does not import or make when it starts: each takes megabytes or a tenth of a second, and can wait for its use."""

import os
import subprocess
import sys
from pathlib import Path

WHEN_USED = {
    "aiohttp": "a model's first request",
    "alembic": "a database of an older revision",
    "anthropic": "a model's first request",
    "bs4": "a page that is fetched",
    "genai_prices": "the catalogue of models",
    "httpx": "a plugin that calls the API",
    "httpx2": "a model's first request",
    "markdown_it": "the terminal",
    "markdownify": "a page that is fetched",
    "mcp": "an MCP server",
    "openai": "a model's first request",
    "prometheus_client": "metrics",
    "psycopg": "PostgreSQL",
    "redis": "several servers",
    "rich.markdown": "the terminal",
    "sqlalchemy.orm": "nothing: no row is ever an object",
    "tree_sitter": "a shell command",
    "yaml": "the API's description",
}
_START = """
import sys
import app.cli, app.http_server
from app.api.json_route import StrictRoute
from app.main import create_app
from app.settings import Settings
routes = create_app(Settings()).routes
"""
_MODULES = "sys.modules"
_ROUTES = "{route.operation_id for route in routes if isinstance(route, StrictRoute)}"
_MADE_ROUTES = "{route.operation_id for route in routes if isinstance(route, StrictRoute) and hasattr(route, 'dependant')}"


def after_start(data: Path, names: str) -> set[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(data), "OPENSESSION_DATA_DIR": str(data)}
    code = f"{_START}\nprint(*{names}, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=data, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_is_seldom_needed_is_not_imported_at_start(tmp_path: Path) -> None:
    assert "alembic" in after_start(tmp_path, _MODULES), "the first start makes the database"
    imported = after_start(tmp_path, _MODULES)
    assert "app.main" in imported
    assert {name: why for name, why in WHEN_USED.items() if name in imported} == {}


def test_routes_are_made_with_their_first_requests(tmp_path: Path) -> None:
    assert "session.list" in after_start(tmp_path, _ROUTES)
    assert after_start(tmp_path, _MADE_ROUTES) == set()
