"""Opens the database that the servers of these settings use."""

from app.backup.placing import finish_restore
from app.settings import Settings
from app.storage.engine import Database, require_writable
from app.storage.migrate import require_current, upgrade


def open_database(settings: Settings) -> Database:
    """What a killed restore left to be done is done first. The embedded database is migrated here; a shared one is by
    `opensession migrate`. Raises DatabaseUnusable and StorageError."""
    require_writable(settings.data_dir)
    finish_restore(settings.data_dir)
    database = Database(settings.resolved_database_url)
    if settings.database_url is None:
        upgrade(database.engine)
    else:
        require_current(database.engine)
    return database
