"""The ledger's sums: what it adds up to does not depend on what it is grouped by, or into which spans of time it is cut."""

from collections import Counter
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool

from app.record.repositories.account_rows import DAY_MS, used_in_groups
from app.record.tables import STEP_USAGE
from app.schema.session import UsageGroup

COUNTS = ("input", "output", "reasoning", "cache_read", "cache_write", "turns", "tool_calls")
few = st.sampled_from(["a", "b", "ü/c", ""])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            **dict.fromkeys(("owner", "project_id", "directory", "session_id", "agent", "provider_id", "model_id"), few),
            **dict.fromkeys(COUNTS, st.integers(0, 2**40)),
            "message_id": st.just(""),
            "prompt_id": st.none(),
            "time": st.integers(0, 5 * DAY_MS),
            "cost": st.integers(0, 2**20).map(lambda eighths: eighths / 8),
        }
    ),
    max_size=30,
)


def ledger(rows: list[dict[str, Any]]) -> Engine:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        STEP_USAGE.create(connection)
        if rows:
            connection.execute(STEP_USAGE.insert(), [{**row, "id": str(number)} for number, row in enumerate(rows)])
    return engine


def total(engine: Engine, group: str, **limits: Any) -> Counter[str]:
    with engine.connect() as connection:
        found = used_in_groups(connection, group, **limits)
    assert len({key for key, _ in found}) == len(found)
    return sum((Counter({name: getattr(row, name) for name in (*COUNTS, "cost")}) for _, row in found), Counter[str]())


@settings(max_examples=20, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 5 * DAY_MS))
def test_sums_are_the_same_for_every_group_and_cut(rows: list[dict[str, Any]], cut: int) -> None:
    """Costs are eighths, which add up exactly."""
    expected = +sum((Counter({name: row[name] for name in (*COUNTS, "cost")}) for row in rows), Counter[str]())
    engine = ledger(rows)
    for group in get_args(UsageGroup):
        assert total(engine, group) == expected
        assert total(engine, group, until=cut) + total(engine, group, since=cut) == expected
        by_owner = [total(engine, group, owner=owner) for owner in {row["owner"] for row in rows}]
        assert sum(by_owner, Counter[str]()) == expected
    engine.dispose()
