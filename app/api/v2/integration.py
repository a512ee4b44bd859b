"""How a provider is connected: by an API key that is stored here, or by a variable of the environment.

A stored key is a credential. It is named by its provider, which has at most one.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import orjson
from fastapi import Depends, Path
from fastapi.responses import Response
from pydantic import Field

from app.api.deps import AppServices, Who, json_bytes
from app.api.directory import put_key, remove_key, stored_keys
from app.api.roles import READS, WRITES
from app.api.v2.shapes import IN_PLACE, Located, PlaceInstance, PlaceLocation, located, router
from app.schema.base import Wire
from app.schema.errors import BadRequest
from app.schema.model import ApiAuth, Auth

routes = router("/integration", "ForbiddenError", tags=["integration"])
attempts = router("/integration/attempt/{attemptID}", "ForbiddenError", tags=["integration"])
credentials = router("/credential/{credentialID:path}", "ForbiddenError", tags=["integration", "credential"])
routers = (routes, attempts, credentials)

IntegrationPath = Annotated[str, Path(alias="integrationID")]
AttemptPath = Annotated[str, Path(alias="attemptID")]
CredentialPath = Annotated[str, Path(alias="credentialID")]
LABEL = "label"
"""The field of a key's metadata that has its label."""


class IntegrationKeyMethod(Wire):
    type: Literal["key"] = "key"
    label: str = "API key"


class IntegrationEnvMethod(Wire):
    type: Literal["env"] = "env"
    names: list[str]


class ConnectionCredentialInfo(Wire):
    type: Literal["credential"] = "credential"
    id: str
    label: str


class ConnectionEnvInfo(Wire):
    """The variable that has the key."""

    type: Literal["env"] = "env"
    name: str


ConnectionInfo = Annotated[ConnectionCredentialInfo | ConnectionEnvInfo, Field(discriminator="type")]
IntegrationMethod = Annotated[IntegrationKeyMethod | IntegrationEnvMethod, Field(discriminator="type")]


class IntegrationInfo(Wire):
    id: str
    name: str
    methods: list[IntegrationMethod]
    connections: list[ConnectionInfo]


class KeyInput(Wire):
    key: Annotated[str, Field(min_length=1)]
    label: str | None = None


class OAuthInput(Wire):
    method_id: str
    inputs: dict[str, str]
    label: str | None = None


class OAuthCode(Wire):
    code: str | None = None


class CredentialUpdate(Wire):
    label: str


async def _integrations(app: AppServices, who: Who, instance: PlaceInstance) -> dict[str, IntegrationInfo]:
    """The integrations of every provider that needs nothing but a key, and of those that are configured."""
    connected, keys = instance.models.connected, await stored_keys(app, who)
    names = {id_: (provider["name"], provider["env"]) for id_, provider in app.known.providers.items()}
    names |= {id_: (info.name, info.env) for id_, info in connected.items() if id_ in instance.config.provider}
    return {
        id_: IntegrationInfo(
            id=id_,
            name=name,
            methods=[IntegrationKeyMethod(), *([IntegrationEnvMethod(names=env)] if env else [])],
            connections=list(_connections(id_, keys, env if who.may_manage else [])),
        )
        for id_, (name, env) in names.items()
    }


Integrations = Annotated[dict[str, IntegrationInfo], Depends(_integrations)]


async def _known_id(found: Integrations, integration_id: IntegrationPath) -> str:
    """Raises BadRequest."""
    if integration_id not in found:
        raise BadRequest(f"There is no integration {integration_id}", ["integrationID"], integration_id)
    return integration_id


KnownId = Annotated[str, Depends(_known_id)]


@routes.get("", operation_id="v2.integration.list", dependencies=READS)
async def integrations(here: PlaceLocation, found: Integrations) -> Located[list[IntegrationInfo]]:
    """The integrations of every provider that needs nothing but a key, and of those that are configured."""
    return located(here, list(found.values()))


@routes.get(
    "/{integrationID}", operation_id="v2.integration.get", response_model=Located[IntegrationInfo | None], dependencies=READS
)
async def integration(here: PlaceLocation, found: Integrations, integration_id: IntegrationPath) -> Response:
    """Null for an unknown integration, as in OpenCode."""
    one = found.get(integration_id)
    return json_bytes(orjson.dumps({**located(here, None).wire(), "data": one.wire() if one else None}))


@routes.post("/{integrationID}/connect/key", operation_id="v2.integration.connect.key", status_code=204, dependencies=WRITES)
async def connect_by_key(app: AppServices, who: Who, integration_id: KnownId, body: KeyInput) -> None:
    """Stores a provider's key, as `PUT /auth/{providerID}` does."""
    await put_key(app, who, integration_id, _key(body.key, body.label))


@routes.post("/{integrationID}/connect/oauth", operation_id="v2.integration.connect.oauth", status_code=204, dependencies=WRITES)
async def connect_by_oauth(integration_id: KnownId, body: OAuthInput) -> None:
    """Refused: no provider here is signed in to with OAuth."""
    raise BadRequest(f"{integration_id} is connected by an API key, not by signing in", ["methodID"], body.method_id)


@attempts.get("", operation_id="v2.integration.attempt.status", status_code=204, dependencies=[*READS, *IN_PLACE])
async def attempt_status(attempt_id: AttemptPath) -> None:
    """Refused: without OAuth there are no attempts to sign in."""
    raise _no_attempt(attempt_id)


@attempts.delete("", operation_id="v2.integration.attempt.cancel", status_code=204, dependencies=[*WRITES, *IN_PLACE])
async def cancel_attempt(attempt_id: AttemptPath) -> None:
    """An unknown attempt counts as cancelled."""


@attempts.post("/complete", operation_id="v2.integration.attempt.complete", status_code=204, dependencies=[*WRITES, *IN_PLACE])
async def complete_attempt(attempt_id: AttemptPath, body: OAuthCode) -> None:
    """Refused: without OAuth there are no attempts to sign in."""
    raise _no_attempt(attempt_id)


@credentials.patch("", operation_id="v2.credential.update", status_code=204, dependencies=[*WRITES, *IN_PLACE])
async def rename_credential(app: AppServices, who: Who, credential_id: CredentialPath, body: CredentialUpdate) -> None:
    """An unknown credential is ignored."""
    key = (await stored_keys(app, who)).get(credential_id)
    if isinstance(key, ApiAuth):
        await put_key(app, who, credential_id, _key(key.key, body.label, key.metadata))


@credentials.delete("", operation_id="v2.credential.remove", status_code=204, dependencies=[*WRITES, *IN_PLACE])
async def remove_credential(app: AppServices, who: Who, credential_id: CredentialPath) -> None:
    """An unknown credential counts as removed."""
    await remove_key(app, who, credential_id)


def _connections(
    provider_id: str, keys: Mapping[str, Auth], variables: list[str]
) -> Iterator[ConnectionCredentialInfo | ConnectionEnvInfo]:
    key = keys.get(provider_id)
    if isinstance(key, ApiAuth):
        yield ConnectionCredentialInfo(id=provider_id, label=(key.metadata or {}).get(LABEL, "API key"))
    for name in variables:
        if os.environ.get(name):
            yield ConnectionEnvInfo(name=name)


def _key(key: str, label: str | None, metadata: dict[str, str] | None = None) -> ApiAuth:
    return ApiAuth(key=key, metadata={**(metadata or {}), LABEL: label} if label else metadata)


def _no_attempt(attempt_id: str) -> BadRequest:
    return BadRequest(f"There is no attempt {attempt_id}: no provider here is signed in to with OAuth", ["attemptID"], attempt_id)
