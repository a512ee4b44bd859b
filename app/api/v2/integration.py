"""What a provider is connected by: an API key that is stored here, or a variable of the environment.

A stored key is a credential. It is named by its provider, of which there is one.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from fastapi import Path
from fastapi.responses import Response
from pydantic import Field

from app.api.deps import instance_of
from app.api.json_route import ServerRequest
from app.api.provider_keys import put_key, remove_key, stored_keys
from app.api.v2.answers import Located, located, located_list, no_content, router
from app.api.v2.errors import ForbiddenError, described
from app.api.v2.place import Place, place_of
from app.schema.base import Wire
from app.schema.errors import BadRequest
from app.schema.model import ApiAuth, Auth

routes = router(tags=["integration"], responses=described(ForbiddenError))

IntegrationPath = Annotated[str, Path(alias="integrationID")]
AttemptPath = Annotated[str, Path(alias="attemptID")]
CredentialPath = Annotated[str, Path(alias="credentialID")]
LABEL = "label"
"""In a key's metadata."""


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


@routes.get("/integration", operation_id="v2.integration.list", response_model=Located[list[IntegrationInfo]])
async def integrations(request: ServerRequest, place: Place) -> Response:
    """Of every provider that needs nothing but a key, and of those that are configured."""
    location = await place_of(request, place)
    return located_list(location, (await _integrations(request, place)).values())


@routes.get("/integration/{integrationID}", operation_id="v2.integration.get", response_model=Located[IntegrationInfo | None])
async def integration(request: ServerRequest, place: Place, integration_id: IntegrationPath) -> Response:
    """Null for one that is not there, as OpenCode's."""
    location = await place_of(request, place)
    found = (await _integrations(request, place)).get(integration_id)
    return located(location, found.wire_json() if found else b"null")


@routes.post(
    "/integration/{integrationID}/connect/key",
    operation_id="v2.integration.connect.key",
    status_code=204,
    response_model=None,
)
async def connect_by_key(request: ServerRequest, place: Place, integration_id: IntegrationPath, body: KeyInput) -> Response:
    """Stores a provider's key, where `PUT /auth/{providerID}` does."""
    await _require(request, place, integration_id)
    await put_key(request, integration_id, _key(body.key, body.label))
    return no_content()


@routes.post(
    "/integration/{integrationID}/connect/oauth",
    operation_id="v2.integration.connect.oauth",
    status_code=204,
    response_model=None,
)
async def connect_by_oauth(request: ServerRequest, place: Place, integration_id: IntegrationPath, body: OAuthInput) -> Response:
    """Refused: no provider here is signed in to with OAuth."""
    await _require(request, place, integration_id)
    raise BadRequest(f"{integration_id} is connected by an API key, not by signing in", ["methodID"], body.method_id)


@routes.get(
    "/integration/attempt/{attemptID}", operation_id="v2.integration.attempt.status", status_code=204, response_model=None
)
async def attempt_status(request: ServerRequest, place: Place, attempt_id: AttemptPath) -> Response:
    """Refused: without OAuth there are no attempts to sign in."""
    await place_of(request, place)
    raise _no_attempt(attempt_id)


@routes.delete(
    "/integration/attempt/{attemptID}", operation_id="v2.integration.attempt.cancel", status_code=204, response_model=None
)
async def cancel_attempt(request: ServerRequest, place: Place, attempt_id: AttemptPath) -> Response:
    """One that is not there is cancelled already."""
    await place_of(request, place)
    return no_content()


@routes.post(
    "/integration/attempt/{attemptID}/complete",
    operation_id="v2.integration.attempt.complete",
    status_code=204,
    response_model=None,
)
async def complete_attempt(request: ServerRequest, place: Place, attempt_id: AttemptPath, body: OAuthCode) -> Response:
    """Refused: without OAuth there are no attempts to sign in."""
    await place_of(request, place)
    raise _no_attempt(attempt_id)


@routes.patch(
    "/credential/{credentialID:path}",
    operation_id="v2.credential.update",
    status_code=204,
    response_model=None,
    tags=["credential"],
)
async def rename_credential(
    request: ServerRequest, place: Place, credential_id: CredentialPath, body: CredentialUpdate
) -> Response:
    """One that is not there stays away."""
    await place_of(request, place)
    key = (await stored_keys(request)).get(credential_id)
    if isinstance(key, ApiAuth):
        await put_key(request, credential_id, _key(key.key, body.label, key.metadata))
    return no_content()


@routes.delete(
    "/credential/{credentialID:path}",
    operation_id="v2.credential.remove",
    status_code=204,
    response_model=None,
    tags=["credential"],
)
async def remove_credential(request: ServerRequest, place: Place, credential_id: CredentialPath) -> Response:
    """One that is not there is gone already."""
    await place_of(request, place)
    await remove_key(request, credential_id)
    return no_content()


async def _integrations(request: ServerRequest, place: str | None) -> dict[str, IntegrationInfo]:
    instance, known = await instance_of(request, place), request.services.directories.known.providers
    connected, keys = instance.models.connected, await stored_keys(request)
    names = {id_: (provider.name, list(provider.env)) for id_, provider in known.items()}
    names |= {id_: (info.name, info.env) for id_, info in connected.items() if id_ in instance.config.provider}
    shows_server = request.principal.may_manage
    return {
        id_: IntegrationInfo(
            id=id_,
            name=name,
            methods=[IntegrationKeyMethod(), *([IntegrationEnvMethod(names=env)] if env else [])],
            connections=list(_connections(id_, keys, env if shows_server else [])),
        )
        for id_, (name, env) in names.items()
    }


def _connections(
    provider_id: str, keys: Mapping[str, Auth], variables: list[str]
) -> Iterator[ConnectionCredentialInfo | ConnectionEnvInfo]:
    key = keys.get(provider_id)
    if isinstance(key, ApiAuth):
        yield ConnectionCredentialInfo(id=provider_id, label=(key.metadata or {}).get(LABEL, "API key"))
    for name in variables:
        if os.environ.get(name):
            yield ConnectionEnvInfo(name=name)


async def _require(request: ServerRequest, place: str | None, integration_id: str) -> None:
    if integration_id not in await _integrations(request, place):
        raise BadRequest(f"There is no integration {integration_id}", ["integrationID"], integration_id)


def _key(key: str, label: str | None, metadata: dict[str, str] | None = None) -> ApiAuth:
    return ApiAuth(key=key, metadata={**(metadata or {}), LABEL: label} if label else metadata)


def _no_attempt(attempt_id: str) -> BadRequest:
    return BadRequest(f"There is no attempt {attempt_id}: no provider here is signed in to with OAuth", ["attemptID"], attempt_id)
