"""Webhooks, as clients make and see them."""

from typing import Annotated

from pydantic import Field

from app.schema.base import SessionID, Wire

LONGEST_URL = 2_000
MOST_PATTERNS = 50

Url = Annotated[str, Field(max_length=LONGEST_URL, description="Where events are sent: https://… or http://…")]
Patterns = Annotated[
    list[str],
    Field(
        min_length=1,
        max_length=MOST_PATTERNS,
        description="Types of events: `session.idle`, all of a kind by `session.*`, all by `*`. Never `message.part.delta`",
    ),
]
Secret = Annotated[str, Field(description="What messages are signed with: `whsec_` and 24 to 64 bytes in base64")]


class WebhookInput(Wire):
    url: Url
    events: Patterns
    directory: Annotated[str | None, Field(description="Events of this directory alone")] = None
    session_id: Annotated[SessionID | None, Field(description="Events of this session alone, without its children's")] = None
    secret: Annotated[str | None, Field(description="As in the answer; one is made if absent")] = None


class WebhookPatch(Wire):
    """Absent fields stay as they are."""

    url: Url | None = None
    events: Patterns | None = None
    secret: Secret | None = None
    enabled: Annotated[
        bool | None, Field(description="`true` also lets one that was switched off, or waits for its next attempt, go on at once")
    ] = None


class WebhookTime(Wire):
    created: int


class WebhookFailure(Wire):
    """The failure of the message that is tried again. Times in epoch milliseconds."""

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
    """One attempt. `messageID` is the request's `webhook-id`, the same in each attempt; without an `error` it was accepted."""

    message_id: str
    type: str
    time: int
    attempt: int
    milliseconds: int
    status: int | None = None
    error: str | None = None
