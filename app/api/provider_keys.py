"""Whose keys of providers a request reads and changes: a member's own, stored encrypted, else the server's."""

from collections.abc import Mapping

from app.api.access import AdminsOnly
from app.api.services import Services
from app.schema.model import Auth, WellKnownAuth
from app.users.principal import Principal


async def stored_keys(app: Services, who: Principal) -> Mapping[str, Auth]:
    """By provider."""
    if who.may_manage:
        return app.auth.all()
    return await app.user_keys.for_user(who.name)


async def put_key(app: Services, who: Principal, provider_id: str, key: Auth) -> None:
    """The server's is kept in the data directory in a file that only the server's user can read. Raises AdminsOnly."""
    if who.may_manage:
        app.auth.set(provider_id, key)
    elif isinstance(key, WellKnownAuth):
        raise AdminsOnly  # an organisation's configuration is everybody's
    else:
        await app.user_keys.put(who.name, provider_id, key)


async def remove_key(app: Services, who: Principal, provider_id: str) -> None:
    if who.may_manage:
        app.auth.remove(provider_id)
    else:
        await app.user_keys.remove(who.name, provider_id)
