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
    "acp": "an editor",
    "alembic": "a database that is new, or of an older revision",
    "anthropic": "a directory whose models it asks",
    "app.api.absent": "a request for what is not there",
    "app.api.v2.catalogue": "a request of the second API",
    "app.api.mcp_server": "another agent that asks by MCP",
    "app.permissions.shell.analysis": "a shell command",
    "app.providers.scripted_rules": "a model's first request",
    "app.schema.timeline": "a request of the second API",
    "app.transfer.importing": "an export or import",
    "bs4": "a page that is fetched",
    "cattrs": "a language server",
    "http.cookiejar": "a page that is fetched",
    "httpx2": "whatever is fetched",
    "lsprotocol": "a language server",
    "markdown_it": "the terminal",
    "markdownify": "a page that is fetched",
    "mcp": "an MCP server",
    "mcp_types": "an MCP server",
    "openai": "a directory whose models it asks",
    "prometheus_client": "metrics",
    "psycopg": "PostgreSQL",
    "pygls": "a language server",
    "redis": "several servers",
    "rich.markdown": "the terminal",
    "tree_sitter": "a shell command",
    "yaml": "the API's description",
}
_START = """
import json, sys
import app.cli, app.http_server
from app.main import create_app
from app.settings import Settings
create_app(Settings())
print(json.dumps([*sys.modules]))
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
    first, later = starts
    assert "app.main" in first and "app.main" in later
    assert [name for name in WHEN_USED if name in first] == ["alembic"]
    assert [name for name in WHEN_USED if name in later] == []
