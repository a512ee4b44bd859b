"""Configuration, providers and their keys. Secrets go in and never come out."""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import Path
from fastapi.responses import Response

from app.api.deps import AppServices, CurrentInstance, CurrentWorkspace, Here, Who, json_bytes
from app.api.json_route import router
from app.api.roles import ADMIN_READS, MANAGES, READS, WRITES, AdminsOnly
from app.config.patch import masked
from app.provider.models.listing import ConnectedProviders, ProviderList, auth_methods, config_providers, provider_list
from app.schema.config import Config
from app.schema.model import Auth, ProviderAuthMethod, WellKnownAuth
from app.server import Server
from app.users.principal import Principal

routes = router("", 400, 403)
global_config = router("/global/config", 400, 403, tags=["global"])
auth = router("/auth", 400, tags=["auth"])


@routes.get("/config", tags=["config"], response_model=Config, dependencies=READS)
async def get(who: Who, instance: CurrentInstance) -> Response:
    return json_bytes(orjson.dumps(masked(instance.config, may_manage=who.may_manage)))


@routes.patch("/config", tags=["config"], response_model=Config, dependencies=MANAGES)
async def update(workspace: CurrentWorkspace, body: dict[str, Any]) -> Response:
    """Change the directory's own configuration file; what is not named stays as it is."""
    await workspace.patch_config(body)
    return json_bytes(orjson.dumps(masked((await workspace.config()).config)))


@global_config.get("", operation_id="global.config.get", response_model=Config, dependencies=ADMIN_READS)
async def get_global(app: AppServices, who: Who) -> Response:
    """The user's own configuration, which holds in all directories."""
    config = await app.global_config.get()
    return json_bytes(orjson.dumps(masked(config, may_manage=who.may_manage)))


@global_config.patch("", operation_id="global.config.update", response_model=Config, dependencies=MANAGES)
async def update_global(app: AppServices, body: dict[str, Any]) -> Response:
    """Change the user's own configuration file; what is not named stays as it is."""
    return json_bytes(orjson.dumps(masked(await app.global_config.patch(body))))


@routes.get("/config/providers", tags=["config"], operation_id="config.providers", dependencies=READS)
async def connected(instance: CurrentInstance) -> ConnectedProviders:
    return config_providers(instance.models.connected)


@routes.get("/provider", tags=["provider"], operation_id="provider.list", dependencies=READS)
async def providers(app: AppServices, instance: CurrentInstance) -> ProviderList:
    return provider_list(app.known, instance.models.connected, app.instances.settings(instance))


@routes.get("/provider/auth", tags=["provider"], operation_id="provider.auth", dependencies=READS)
async def methods(app: AppServices, here: Here) -> dict[str, list[ProviderAuthMethod]]:
    return auth_methods(app.known)


ProviderPath = Annotated[str, Path(alias="providerID", min_length=1)]
"""An organisation is named by its address, slashes and all."""


@auth.put("/{providerID:path}", operation_id="auth.set", dependencies=WRITES)
async def set_key(app: AppServices, who: Who, provider_id: ProviderPath, body: Auth) -> bool:
    """A member's own is stored for them, encrypted. The server's is kept in the data directory in a file that only the server's
    user can read."""
    await put_key(app, who, provider_id, body)
    return True


@auth.delete("/{providerID:path}", operation_id="auth.remove", dependencies=WRITES)
async def delete_key(app: AppServices, who: Who, provider_id: ProviderPath) -> bool:
    await remove_key(app, who, provider_id)
    return True


# Whose keys of providers a request reads and changes: a member's own, stored encrypted, else the server's.


async def stored_keys(app: Server, who: Principal) -> Mapping[str, Auth]:
    """By provider."""
    if who.may_manage:
        return app.auth.all()
    return await app.user_keys.for_user(who.name)


async def put_key(app: Server, who: Principal, provider_id: str, key: Auth) -> None:
    """The server's is kept in the data directory in a file that only the server's user can read. Raises AdminsOnly."""
    if who.may_manage:
        app.auth.set(provider_id, key)
    elif isinstance(key, WellKnownAuth):
        raise AdminsOnly  # an organisation's configuration is everybody's
    else:
        await app.user_keys.put(who.name, provider_id, key)


async def remove_key(app: Server, who: Principal, provider_id: str) -> None:
    if who.may_manage:
        app.auth.remove(provider_id)
    else:
        await app.user_keys.remove(who.name, provider_id)
