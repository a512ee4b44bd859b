"""How a session begins: with a title, or as a copy of another one up to a message. A copy is one transaction: its rows are copied
within the database, with new ids."""

import random
import re

from app import __version__
from app.project.location import Location
from app.record.repositories import message_rows
from app.schema.errors import MessageNotFound
from app.schema.permission import Ruleset
from app.schema.session import Session, SessionTime
from app.sessions.live import LiveSessions
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.summary import default_title, is_default_title
from app.sessions.usage import ProjectQuota
from app.util import clock, ids

_ADJECTIVES = (
    "able amber bold brave bright brisk calm clear clever cosy crisp daring eager fair fresh gentle glad golden kind "
    "lively lucky mellow merry neat nimble plain proud quick quiet ready rosy shy silent silver smooth snug solid steady "
    "sunny swift tidy tiny warm wise witty young"
)
_NOUNS = (
    "badger bay beacon birch brook cabin canyon cedar cliff cloud comet cove crane dawn dune eagle ember falcon fern "
    "field finch fjord forest fox garden glade harbor hawk heron hill island lagoon lake lantern maple marsh meadow moon "
    "oak orchid otter owl pebble pine planet pond raven reef ridge river robin sparrow spring star stone summit tide "
    "valley willow wren"
)


def make_slug() -> str:
    return f"{random.choice(_ADJECTIVES.split())}-{random.choice(_NOUNS.split())}"


_FORK = re.compile(r"(?P<title>.*) \(fork #(?P<number>\d{1,15})\)", re.DOTALL)


def title_of_fork(title: str) -> str:
    """`T` → `T (fork #1)` → `T (fork #2)`."""
    fork = _FORK.fullmatch(title)
    if fork is None:
        return f"{title} (fork #1)"
    return f"{fork['title']} (fork #{int(fork['number']) + 1})"


def new_session(location: Location, name: str | None, parent_id: str | None = None, permission: Ruleset | None = None) -> Session:
    """`name`: the title; None for the default, which contains the creation time."""
    now = clock.now_ms()
    return Session(
        id=ids.descending("session"),
        slug=make_slug(),
        project_id=location.project_id,
        directory=location.directory,
        path=location.path,
        parent_id=parent_id,
        title=name if name is not None else default_title(child=parent_id is not None),
        version=__version__,
        time=SessionTime(created=now, updated=now),
        permission=permission,
        no_undo=location.no_undo,
    )


class Forks:
    def __init__(self, store: Store, quota: ProjectQuota, live: LiveSessions) -> None:
        self._store = store
        self._quota = quota
        self._live = live

    async def fork(self, location: Location, session_id: str, message_id: str | None) -> Session:
        """Copies everything before `message_id`, or all finished messages. Waits for requests that change messages. Raises
        NotFound for an unknown session or message, and ProjectFull."""
        await self._quota.require_room(location.project_id)
        fork_id = ids.descending("session")

        def fork(tx: SessionTx) -> None:
            original = tx.of(session_id).session()
            title = None if is_default_title(original.title) else title_of_fork(original.title)
            session = new_session(location, title, permission=original.permission)
            session.id, session.owner = fork_id, original.owner
            session.agent, session.model, session.metadata = original.agent, original.model, original.metadata
            extent = message_rows.history_extent(tx.connection, session_id, message_id)
            if extent is None:
                raise MessageNotFound(session_id, message_id or "")
            before, (first_message, last_message), (first_part, last_part) = extent
            number, letters = ids.reserve(max(last_message - first_message, last_part - first_part) + 1)
            offsets = {"message_offset": number - first_message, "part_offset": number - first_part}
            tx.copy_history(session, {"source": session_id, "target": fork_id, "before": before, "letters": letters, **offsets})

        async with self._live.get(session_id).messages:
            self._store.live.write_all()
            await self._store.write(fork_id, location.directory, fork)
        return await self._store.session(fork_id)
