"""A `HEAD` is answered with the head of what `GET` answers: health checks ask so, and programs that follow a link."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


async def answer_head(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """What would go on after the head, such as a stream, is told by the HTTP server that its client is gone."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    got = {**scope, "method": "GET"}
    try:
        await app(got, receive, send_head)
    finally:
        scope.update(got, method="HEAD")  # the route, for those who count requests
