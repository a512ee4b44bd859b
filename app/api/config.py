"""Configuration, providers and their keys. Secrets go in and never come out."""

from typing import Annotated, Any

import orjson
from fastapi import Path
from fastapi.responses import Response

from app.api.deps import TRUE, Directory, documented, instance_of, json_bytes, location_of, wire, workspace_of
from app.api.json_route import ServerRequest, router
from app.api.provider_keys import put_key, remove_key
from app.config.masking import masked
from app.provider.models.listing import ConnectedProviders, ProviderList, auth_methods, config_providers, provider_list
from app.schema.config import Config
from app.schema.model import Auth, ProviderAuthMethod

routes = router()


@routes.get("/config", operation_id="config.get", response_model=Config, tags=["config"], responses=documented(400, 403))
async def get(request: ServerRequest, where: Directory) -> Response:
    config = (await instance_of(request, where)).config
    return json_bytes(orjson.dumps(masked(config, may_manage=request.principal.may_manage)))


@routes.patch("/config", operation_id="config.update", response_model=Config, tags=["config"], responses=documented(400, 403))
async def update(request: ServerRequest, where: Directory, body: dict[str, Any]) -> Response:
    """Change the directory's own configuration file; what is not named stays as it is."""
    workspace = await workspace_of(request, where)
    await workspace.patch_config(body)
    return json_bytes(orjson.dumps(masked((await workspace.config()).config)))


@routes.get(
    "/global/config", operation_id="global.config.get", response_model=Config, tags=["global"], responses=documented(400, 403)
)
async def get_global(request: ServerRequest) -> Response:
    """The user's own configuration, which holds in all directories."""
    config = await request.services.directories.global_config.get()
    return json_bytes(orjson.dumps(masked(config, may_manage=request.principal.may_manage)))


@routes.patch(
    "/global/config", operation_id="global.config.update", response_model=Config, tags=["global"], responses=documented(400, 403)
)
async def update_global(request: ServerRequest, body: dict[str, Any]) -> Response:
    """Change the user's own configuration file; what is not named stays as it is."""
    return json_bytes(orjson.dumps(masked(await request.services.directories.global_config.patch(body))))


@routes.get(
    "/config/providers",
    operation_id="config.providers",
    response_model=ConnectedProviders,
    tags=["config"],
    responses=documented(400, 403),
)
async def connected(request: ServerRequest, where: Directory) -> Response:
    return wire(config_providers((await instance_of(request, where)).models.connected))


@routes.get(
    "/provider", operation_id="provider.list", response_model=ProviderList, tags=["provider"], responses=documented(400, 403)
)
async def providers(request: ServerRequest, where: Directory) -> Response:
    instance = await instance_of(request, where)
    directories = request.services.directories
    return wire(provider_list(directories.known, instance.models.connected, directories.instances.settings(instance)))


@routes.get(
    "/provider/auth",
    operation_id="provider.auth",
    response_model=dict[str, list[ProviderAuthMethod]],
    tags=["provider"],
    responses=documented(400, 403),
)
async def methods(request: ServerRequest, where: Directory) -> dict[str, list[ProviderAuthMethod]]:
    await location_of(request, where)
    return auth_methods(request.services.directories.known)


ProviderPath = Annotated[str, Path(alias="providerID", min_length=1)]
"""An organisation is named by its address, slashes and all."""


@routes.put("/auth/{providerID:path}", operation_id="auth.set", response_model=bool, tags=["auth"], responses=documented(400))
async def set_key(request: ServerRequest, provider_id: ProviderPath, body: Auth) -> Response:
    """A member's own is stored for them, encrypted. The server's is kept in the data directory in a file that only the server's
    user can read."""
    await put_key(request, provider_id, body)
    return json_bytes(TRUE)


@routes.delete(
    "/auth/{providerID:path}", operation_id="auth.remove", response_model=bool, tags=["auth"], responses=documented(400)
)
async def delete_key(request: ServerRequest, provider_id: ProviderPath) -> Response:
    await remove_key(request, provider_id)
    return json_bytes(TRUE)
