"""What a server does not import when it starts: each takes megabytes or a tenth of a second, and waits for its first use."""

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
from app.main import create_app
from app.settings import Settings
create_app(Settings())
print(*sys.modules, sep="\\n")
"""


def modules_of_start(data: Path) -> set[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(data), "OPENSESSION_DATA_DIR": str(data)}
    done = subprocess.run([sys.executable, "-c", _START], env=environment, cwd=data, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_what_is_seldom_needed_is_not_imported_at_start(tmp_path: Path) -> None:
    assert "alembic" in modules_of_start(tmp_path), "the first start makes the database"
    imported = modules_of_start(tmp_path)
    assert "app.main" in imported
    assert {name: why for name, why in WHEN_USED.items() if name in imported} == {}
