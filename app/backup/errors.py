"""Why a backup cannot be made or restored. Each message says what to do."""

from app.storage.engine import DatabaseUnusable


class BackupError(Exception):
    """Nothing was changed."""


class BackupDamaged(BackupError):
    """What a backup holds is not what was written."""


class RestoreUnderWay(DatabaseUnusable):
    """Another process is restoring into the data directory."""
