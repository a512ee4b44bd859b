"""The services that the routes call are the server's."""

from typing import cast

from starlette.requests import HTTPConnection

from app.server import Server


def services_of(request: HTTPConnection) -> Server:
    return cast(Server, request.app.state.server)
