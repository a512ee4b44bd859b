"""Alembic's entry: app/record/migrate.py hands over a connection; `alembic` as a command reads OPENSESSION_DATABASE_URL."""

from alembic import context
from sqlalchemy import Connection

from app.record.engine import make_engine
from app.record.tables import METADATA
from app.settings import Settings


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=METADATA)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with make_engine(Settings().resolved_database_url).connect() as opened:
        run(opened)
