from pydantic import TypeAdapter

from app.schema.session import Todo
from app.session.store import Store
from app.storage import tables
from app.storage.repositories import session_rows

_TODOS = TypeAdapter(list[Todo])


async def read_todos(store: Store, session_id: str) -> list[Todo]:
    body = await store.query(session_rows.body_of, tables.TODO, session_id)
    return _TODOS.validate_json(body) if body else []
