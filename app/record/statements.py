"""The write statements. Portable between SQLite and PostgreSQL.

Each statement object is created once and executed with many rows, so that SQLAlchemy compiles it once. SQLAlchemy reserves the
names of columns for the values that an UPDATE or INSERT sets. So the parameters of conditions have other names: `of_…` for the
row that is meant, `gone` for the key of what is deleted.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Float,
    Numeric,
    Text,
    TextClause,
    and_,
    bindparam,
    case,
    cast,
    delete,
    false,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.sql.base import Executable

from app.record.repositories.session_rows import SESSION_COLUMNS
from app.record.repositories.work_rows import now_ms
from app.record.tables import (
    APPROVAL,
    COUNTER,
    DIFF,
    DIRECTORY_STATE,
    EVENT,
    EVENT_TOKEN,
    IMPORTED_SESSION,
    LEASE,
    MESSAGE,
    PART,
    PART_TEXT,
    PENDING_REQUEST,
    PROJECT,
    QUEUED_PROMPT,
    REPLICA,
    SESSION,
    SHARE,
    STEP_USAGE,
    SUMS,
    TODO,
    USAGE,
    USER,
    USER_KEY,
)

# Copies the messages and parts of a session into another one, under new ids: no row leaves the database. A new id has the form of
# `app.util.ids`. Its number is the row's sequence and an offset, so that ids ascend as the rows do. The statements are text:
# SQLAlchemy takes as long to make them of expressions as the database takes to copy a hundred turns.


_DIGITS = {"sqlite": "printf('%012x', {number})", "postgresql": "lpad(to_hex({number}), 12, '0')"}
_48_BITS = (1 << 48) - 1
_COPIED = "message.session_id = :source AND message.seq < :before AND (message.role = 'user' OR NOT message.open)"
_PART_OF_COPIED = "part.session_id = :source AND part.message_id = message.id"


def copying_statements(dialect: str) -> tuple[TextClause, ...]:
    """To be executed in this order. They copy the finished messages of `source` with a sequence below `before`. The offsets are
    of the new ids' numbers; `letters` end each id."""

    def new_id(prefix: str, number: str) -> str:
        return f"'{prefix}_' || {_DIGITS[dialect].format(number=f'({number}) & {_48_BITS}')} || :letters"

    message, part = new_id("msg", "message.seq + :message_offset"), new_id("prt", "part.seq + :part_offset")
    messages = f"""
        INSERT INTO message (session_id, id, parent_id, open, role, boundary, body, live_body)
        SELECT :target, {message}, CASE WHEN prompt.seq IS NULL THEN message.parent_id
               ELSE {new_id("msg", "prompt.seq + :message_offset")} END, false,
               message.role, message.boundary, message.body, message.live_body
        FROM message
        LEFT JOIN message AS prompt ON prompt.session_id = :source AND prompt.id = message.parent_id AND prompt.seq < :before
        WHERE {_COPIED}
        ORDER BY message.seq"""
    parts = f"""
        INSERT INTO part (session_id, message_id, id, type, body, live_body, snapshot)
        SELECT :target, {message}, {part}, part.type, part.body, part.live_body, part.snapshot
        FROM message JOIN part ON {_PART_OF_COPIED}
        WHERE {_COPIED}
        ORDER BY message.seq, part.seq"""
    texts = f"""
        INSERT INTO part_text (part_seq, role, kind, time, text)
        SELECT copy.seq, part_text.role, part_text.kind, part_text.time, part_text.text
        FROM message JOIN part ON {_PART_OF_COPIED} JOIN part_text ON part_text.part_seq = part.seq
        JOIN part AS copy ON copy.session_id = :target AND copy.message_id = {message} AND copy.id = {part}
        WHERE {_COPIED}"""
    if dialect == "sqlite":
        return text(messages), text(parts), text(texts)
    # PostgreSQL takes a session that its statistics do not have for one row, and would compare all of its rows with each other.
    original = f"(('x' || substr(copy.id, {len('prt_') + 1}, 12))::bit(48)::bigint - :part_offset) & {_48_BITS}"
    texts = f"""
        INSERT INTO part_text (part_seq, role, kind, time, text)
        SELECT copy.seq, part_text.role, part_text.kind, part_text.time, part_text.text
        FROM part AS copy JOIN part_text ON part_text.part_seq = {original}
        WHERE copy.session_id = :target"""
    loops = "SET LOCAL enable_nestloop"
    return text(f"{loops} = off"), text(messages), text(parts), text(f"{loops} TO DEFAULT"), text(texts)


@dataclass(frozen=True, eq=False, slots=True)
class Put:
    """A statement whose rows, also of several changes, are written together: parents first, by `order`."""

    order: int
    statement: Executable


_OPEN_OF_PROMPTS = case((MESSAGE.c.role == "user", MESSAGE.c.open), else_=literal_column("excluded.open"))
"""A prompt keeps its `open` when its message is stored again. One statement stores the messages of both roles: with two, the
prompts of a batch would be inserted before its answers."""


_ONE_LEASE = (
    LEASE.c.session_id == bindparam("lease_session"),
    LEASE.c.generation == bindparam("lease_generation"),
    LEASE.c.owner == bindparam("lease_owner"),
)


class Statements:
    """The writer's statements for one dialect."""

    def __init__(self, dialect: str) -> None:
        self._insert: Any = import_module(f"sqlalchemy.dialects.{dialect}").insert  # the other database's module is not loaded
        self._now = now_ms(dialect)
        self._make_puts()
        self._make_part_texts()
        self._make_removals()
        self._make_journal()
        self._make_leases()
        self._make_what_servers_share()
        self._make_users()
        self.add_step_usage = Put(6, self._add_step_usage())
        self._make_session_sums()
        self.copy_history = copying_statements(dialect)

    def _make_puts(self) -> None:
        self.put_project = Put(0, self._upsert(PROJECT, ["id"]))
        self.add_session = Put(1, self._insert(SESSION))
        self.put_session = Put(2, self._upsert(SESSION, ["id"], keep=frozenset({"diff_basis", *SUMS})))
        self.put_message = Put(
            4, self._upsert(MESSAGE, ["session_id", "id"], keep=frozenset({"input_hash"}), open=_OPEN_OF_PROMPTS)
        )
        self.put_todo = Put(8, self._upsert(TODO, ["session_id"]))
        self.put_diff = Put(9, self._upsert(DIFF, ["session_id"]))
        self.put_diff_basis = Put(
            3, update(SESSION).where(SESSION.c.id == bindparam("of_session")).values(diff_basis=bindparam("basis"))
        )
        self.put_share = Put(10, self._upsert(SHARE, ["session_id"]))
        self.put_imported = self._upsert(IMPORTED_SESSION, ["id"])
        self.put_request = Put(11, self._upsert(PENDING_REQUEST, ["id"]))
        self.answer_request = (
            update(PENDING_REQUEST)
            .where(PENDING_REQUEST.c.id == bindparam("of_request"), PENDING_REQUEST.c.answer.is_(None))
            .values(answer=bindparam("new_answer"))
        )
        self.put_queued_prompt = Put(13, self._insert(QUEUED_PROMPT).on_conflict_do_nothing())
        self.put_approval = Put(12, self._insert(APPROVAL).on_conflict_do_nothing())

    def _make_part_texts(self) -> None:
        of_part = (
            PART.c.session_id == bindparam("of_session"),
            PART.c.message_id == bindparam("of_message"),
            PART.c.id == bindparam("of_part"),
        )
        of_message = and_(MESSAGE.c.session_id == PART.c.session_id, MESSAGE.c.id == PART.c.message_id)
        text = (bindparam("kind", type_=Text), bindparam("time", type_=BigInteger), bindparam("text", type_=Text))
        of_stored = select(PART.c.seq, MESSAGE.c.role, *text).join(MESSAGE, of_message).where(*of_part)
        columns = ["part_seq", "role", "kind", "time", "text"]
        insert = self._insert(PART_TEXT).from_select(columns, of_stored, include_defaults=False)
        changed = insert.on_conflict_do_update(
            index_elements=["part_seq"],
            set_={"kind": insert.excluded.kind, "text": insert.excluded.text},
            where=PART_TEXT.c.text != insert.excluded.text,  # an unchanged text stays in the index
        )
        self.put_part_text = Put(7, changed)
        self.delete_part_text = delete(PART_TEXT).where(PART_TEXT.c.part_seq.in_(select(PART.c.seq).where(*of_part)))
        self.put_part = Put(5, self._upsert(PART, ["session_id", "message_id", "id"]))

    def _make_removals(self) -> None:
        self.delete_session = delete(SESSION).where(SESSION.c.id == bindparam("gone"))
        self.delete_approvals = delete(APPROVAL).where(APPROVAL.c.session_id == bindparam("gone"))
        self.delete_approval = _delete(APPROVAL, project_id="of_project", permission="of_permission", pattern="gone")
        self.delete_message = _delete(MESSAGE, session_id="of_session", id="gone")
        self.delete_message_parts = _delete(PART, session_id="of_session", message_id="gone")
        self.close_prompts = (
            update(MESSAGE)
            .where(MESSAGE.c.session_id == bindparam("of_session"), MESSAGE.c.role == "user", MESSAGE.c.open)
            .where(MESSAGE.c.seq <= newest_answered("of_session"))
            .values(open=False)
        )
        self.open_prompt = (
            update(MESSAGE)
            .where(MESSAGE.c.session_id == bindparam("of_session"), MESSAGE.c.id == bindparam("of_message"))
            .where(MESSAGE.c.role == "user", MESSAGE.c.seq > func.coalesce(newest_answered("of_session"), 0))
            .values(open=True)
        )
        self.delete_part = _delete(PART, session_id="of_session", message_id="of_message", id="gone")
        self.delete_request = _delete(PENDING_REQUEST, id="gone")
        self.delete_queued_prompt = _delete(QUEUED_PROMPT, id="gone")
        self.delete_share = _delete(SHARE, session_id="gone")
        self.move_sessions = (
            update(SESSION)
            .where(SESSION.c.project_id == bindparam("from_project"), SESSION.c.directory == bindparam("in_directory"))
            .values(project_id=bindparam("to_project"))
        )

    def _make_journal(self) -> None:
        self.put_event = Put(14, insert(EVENT))
        self.advance_journal = (
            update(COUNTER)
            .where(COUNTER.c.name == "journal")
            .values(value=COUNTER.c.value + bindparam("count"))
            .returning(COUNTER.c.value)
        )

    def _make_leases(self) -> None:
        self.acquire_lease = self._acquire_lease()
        self.check_lease = select(LEASE.c.generation).where(*_ONE_LEASE)
        own = (LEASE.c.session_id == bindparam("lease_session"), LEASE.c.owner == bindparam("lease_owner"))
        unlocked = select(LEASE.c.session_id).where(*own).with_for_update(skip_locked=True)  # a heartbeat waits for no writer
        self.renew_leases = update(LEASE).where(LEASE.c.session_id.in_(unlocked)).values(heartbeat=self._now)
        released = {"owner": "", "status": None, "directory": None, "aborting": False}
        self.release_lease = update(LEASE).where(*_ONE_LEASE).values(**released, takeovers=0)
        self.release_recovered_lease = update(LEASE).where(*_ONE_LEASE).values(**released)
        self.abort_run = update(LEASE).where(*_ONE_LEASE).values(aborting=bindparam("wanted"))
        self.put_lease_status = (
            update(LEASE)
            .where(LEASE.c.session_id == bindparam("lease_session"), LEASE.c.owner != "")
            .values(status=bindparam("new_status"), directory=bindparam("new_directory"))
        )
        self.take_over_lease = (
            update(LEASE)
            .where(*_ONE_LEASE)
            .values(owner=bindparam("new_owner"), heartbeat=self._now, generation=LEASE.c.generation + 1)
            .values(takeovers=LEASE.c.takeovers + 1)
            .returning(LEASE.c.takeovers)
        )
        self.hand_over_lease = (
            update(LEASE)
            .where(*_ONE_LEASE)
            .values(heartbeat=self._now - bindparam("stale_ms", type_=BigInteger), takeovers=LEASE.c.takeovers - 1)
        )

    def _acquire_lease(self) -> Executable:
        """Returns the generation; no row while another server holds the lease, or for an unknown session."""
        given: dict[str, Any] = {name: bindparam(name, type_=Text) for name in ("session_id", "owner", "directory", "status")}
        values = {**given, "generation": literal_column("1"), "heartbeat": self._now, "aborting": false()}
        insert = self._insert(LEASE).from_select(
            list(values), select(*values.values()).where(SESSION.c.id == given["session_id"]), include_defaults=False
        )
        held = bindparam("held_generation", type_=BigInteger)
        is_held = LEASE.c.generation == held
        acquired: Executable = insert.on_conflict_do_update(
            index_elements=["session_id"],
            set_={name: insert.excluded[name] for name in values if name != "session_id"}
            | {
                "generation": case((is_held, held), else_=LEASE.c.generation + 1),
                "aborting": case((is_held, LEASE.c.aborting), else_=false()),  # asked for before a turn goes on here
            },
            where=LEASE.c.owner.in_((literal_column("''"), given["owner"])),
        ).returning(LEASE.c.generation)
        return acquired

    def _make_what_servers_share(self) -> None:
        head = select(COUNTER.c.value).where(COUNTER.c.name == "journal").scalar_subquery()
        lag = head - bindparam("cursor", type_=BigInteger)
        self.upsert_replica = self._upsert(REPLICA, ["id"], keep=frozenset({"started"})).values(
            started=self._now, heartbeat=self._now, journal_lag=lag
        )
        self.delete_replica = _delete(REPLICA, id="gone")
        # States are deleted only after a newer one was written: otherwise the newest revision would be given twice.
        newer = select(func.coalesce(func.max(DIRECTORY_STATE.c.revision), 0) + 1).scalar_subquery()
        self.put_directory_state = self._upsert(DIRECTORY_STATE, ["directory", "name"]).values(revision=newer)
        self.delete_directory_states = delete(DIRECTORY_STATE).where(
            DIRECTORY_STATE.c.directory == bindparam("of_directory"),
            DIRECTORY_STATE.c.name.startswith(bindparam("prefix", type_=Text)),
        )
        since = self._now - bindparam("lifetime", type_=BigInteger)
        self.put_event_token = self._insert(EVENT_TOKEN).values(created=self._now)
        self.delete_old_event_tokens = delete(EVENT_TOKEN).where(EVENT_TOKEN.c.created <= since)
        valid = (EVENT_TOKEN.c.hash == bindparam("given"), EVENT_TOKEN.c.created > since)
        self.redeem_event_token = delete(EVENT_TOKEN).where(*valid).returning(EVENT_TOKEN.c.principal)

    def _make_users(self) -> None:
        self.put_user = self._upsert(USER, ["name"], keep=frozenset({"created"}))
        self.delete_user = _delete(USER, name="gone")
        self.delete_user_keys = _delete(USER_KEY, name="gone")
        self.put_user_key = self._upsert(USER_KEY, ["name", "provider_id"])
        self.delete_user_key = _delete(USER_KEY, name="gone", provider_id="gone_provider")
        added = self._insert(USAGE)
        self.add_usage = added.on_conflict_do_update(
            index_elements=["name", "day"],
            set_={"cost": USAGE.c.cost + added.excluded.cost, "tokens": USAGE.c.tokens + added.excluded.tokens},
        )

    def _add_step_usage(self) -> Executable:
        """Adds a step's usage once for each id: with what the session's row says, and the tool calls of its message that no
        earlier row counted."""
        used, of_message = STEP_USAGE.alias("used"), PART.c.message_id == bindparam("message_id")
        of_prompt = (used.c.session_id == SESSION.c.id, used.c.prompt_id == bindparam("prompt_id"))
        is_first = ~select(used.c.id).where(*of_prompt).exists()
        calls = select(func.count()).where(PART.c.session_id == SESSION.c.id, of_message, PART.c.type == "tool")
        counted = select(func.coalesce(func.sum(used.c.tool_calls), 0)).where(
            *of_prompt, used.c.message_id == bindparam("message_id")
        )
        values: dict[str, Any] = {column.name: bindparam(column.name, type_=column.type) for column in STEP_USAGE.columns}
        values |= {column: SESSION.c[column] for column in ("owner", "project_id", "directory")}
        values["turns"] = case((is_first, values["turns"]), else_=0)
        values["tool_calls"] = calls.scalar_subquery() - counted.scalar_subquery()
        source = select(*values.values()).where(SESSION.c.id == values["session_id"])
        ledger: Executable = self._insert(STEP_USAGE).from_select(list(values), source).on_conflict_do_nothing()
        return ledger

    def _make_session_sums(self) -> None:
        amounts: dict[str, Any] = {name: bindparam(f"add_{name}", type_=SESSION.c[name].type) for name in SUMS}
        sums: dict[str, Any] = {name: SESSION.c[name] + amount for name, amount in amounts.items()}
        sums["cost"] = cast(func.round(cast(sums["cost"], Numeric), 12), Float)
        of_session = update(SESSION).where(SESSION.c.id == bindparam("of_session"))
        added = of_session.values(sums).returning(SESSION.c.id, *SESSION_COLUMNS)
        is_counted = select(STEP_USAGE.c.id).where(
            STEP_USAGE.c.session_id == SESSION.c.id,
            STEP_USAGE.c.message_id == bindparam("of_message"),
            STEP_USAGE.c.id == bindparam("of_step"),
        )
        self.add_to_session = added
        self.count_in_session = added.where(~is_counted.exists())
        """Adds a step, unless the ledger has it."""

    def _upsert(self, into: Any, key: list[str], keep: frozenset[str] = frozenset(), **values: ColumnElement[Any]) -> Any:
        """Inserts, or replaces all columns but the key, the sequence and those in `keep`. `values` overrides replaced values."""
        insert = self._insert(into)
        fixed = {*key, "seq", *keep}
        changed = {column.name: insert.excluded[column.name] for column in into.columns if column.name not in fixed}
        return insert.on_conflict_do_update(index_elements=key, set_={**changed, **values})


@cache
def statements(dialect: str) -> Statements:
    return Statements(dialect)


def newest_answered(session: str) -> Any:
    """The sequence of the prompt that the newest answer is for. `session`: the name of the parameter."""
    prompt, answer = MESSAGE.alias("answered"), MESSAGE.alias("answer")
    return (
        select(prompt.c.seq)
        .join(answer, and_(answer.c.session_id == prompt.c.session_id, answer.c.parent_id == prompt.c.id))
        .where(answer.c.session_id == bindparam(session), answer.c.role == "assistant")
        .order_by(answer.c.seq.desc())
        .limit(1)
        .scalar_subquery()
    )


def _delete(from_table: Any, **conditions: str) -> Executable:
    return delete(from_table).where(*(from_table.c[column] == bindparam(name) for column, name in conditions.items()))
