"""Webhooks, as clients make and see them."""

from typing import Annotated

from pydantic import Field

from app.schema.base import SessionID, Wire

MAX_URL_CHARACTERS = 2_000
MAX_PATTERNS = 50

Url = Annotated[str, Field(max_length=MAX_URL_CHARACTERS, description="Where events are sent: https://… or http://…")]
Patterns = Annotated[
    list[str],
    Field(
        min_length=1,
        max_length=MAX_PATTERNS,
        description="Types of events: `session.idle`, all of a kind by `session.*`, all by `*`. Never `message.part.delta`, "
        "`server.connected` or `server.heartbeat`, which only event streams have. `server.resync` is sent after a gap, whatever "
        "is listed",
    ),
]
Secret = Annotated[str, Field(description="What messages are signed with: `whsec_` and 24 to 64 bytes in base64")]


class WebhookInput(Wire):
    url: Url
    events: Patterns
    directory: Annotated[str | None, Field(description="Events of this directory alone")] = None
    session_id: Annotated[SessionID | None, Field(description="Events of this session alone, without its children's")] = None
    secret: Annotated[
        str | None, Field(description="The key of the signature: `whsec_` and 24 to 64 bytes in base64; generated if absent")
    ] = None


class WebhookPatch(Wire):
    """Absent fields stay as they are."""

    url: Url | None = None
    events: Patterns | None = None
    secret: Secret | None = None
    enabled: Annotated[
        bool | None,
        Field(
            description="`true` resumes deliveries at once, also of a webhook that the server has switched off or that waits for "
            "its next attempt"
        ),
    ] = None


class WebhookTime(Wire):
    """In epoch milliseconds."""

    created: int


class WebhookFailure(Wire):
    """Why deliveries wait: a message has failed `attempts` times since `since` and is sent again at `nextAttempt`. Times in epoch
    milliseconds."""

    since: int
    attempts: int
    next_attempt: int


class Webhook(Wire):
    """`disabledReason`: why the server switched it off."""

    id: str
    url: str
    events: list[str]
    directory: str | None = None
    session_id: str | None = None
    owner: str | None = None
    enabled: bool
    disabled_reason: str | None = None
    failing: WebhookFailure | None = None
    time: WebhookTime


class NewWebhook(Webhook):
    """Only this answer has the secret."""

    secret: Secret


class WebhookDelivery(Wire):
    """One attempt, at `time` (epoch milliseconds). `messageID` is the header `webhook-id` of the request, the same in each
    attempt. Without an `error` the message was accepted."""

    message_id: str
    type: str
    time: int
    attempt: int
    milliseconds: int
    status: int | None = None
    error: str | None = None
