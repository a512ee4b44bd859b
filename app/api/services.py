"""What the routes call: all that the server has (app/server.py), of which each names what it uses."""

from typing import cast

from starlette.requests import HTTPConnection

from app.server import Server

Services = Server


def services_of(request: HTTPConnection) -> Services:
    return cast(Services, request.app.state.server)
