"""Whose keys of providers a request reads and changes: a member's own, stored encrypted, else the server's."""

from collections.abc import Mapping

from app.api.access import AdminsOnly
from app.api.json_route import ServerRequest
from app.schema.model import Auth, WellKnownAuth


async def stored_keys(request: ServerRequest) -> Mapping[str, Auth]:
    """By provider."""
    if request.principal.may_manage:
        return request.services.directories.auth.all()
    return await request.services.users.keys.for_user(request.principal.name)


async def put_key(request: ServerRequest, provider_id: str, key: Auth) -> None:
    """The server's is kept in the data directory in a file that only the server's user can read. Raises AdminsOnly."""
    if request.principal.may_manage:
        request.services.directories.auth.set(provider_id, key)
    elif isinstance(key, WellKnownAuth):
        raise AdminsOnly  # an organisation's configuration is everybody's
    else:
        await request.services.users.keys.put(request.principal.name, provider_id, key)


async def remove_key(request: ServerRequest, provider_id: str) -> None:
    if request.principal.may_manage:
        request.services.directories.auth.remove(provider_id)
    else:
        await request.services.users.keys.remove(request.principal.name, provider_id)
