"""What is set of uvicorn."""

import httpx2
from fastapi import FastAPI

from app.http_server import http_server
from app.settings import Settings


def test_clients_give_idle_connections_up_before_the_server_does() -> None:
    application = FastAPI()
    application.state.server = None
    theirs = httpx2.Limits().keepalive_expiry
    assert theirs is not None
    assert http_server(application, Settings()).config.timeout_keep_alive > 2 * theirs
