"""Measures searches in messages: `python scripts/bench_search.py [--messages 100000] [--url postgresql+psycopg://…/empty]`.

Without a URL in an SQLite file of its own. The words are made up, by Zipf's law, every tenth message is Chinese. A database that
was filled by an earlier run is taken as it is."""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import accumulate

import orjson
from app.session.sequencer import Sequencer
from sqlalchemy import text

from app.bus.memory import MemoryBus
from app.schema.part import TextPart
from app.session.rows import text_row
from app.session.search import MessageSearch, words_of
from app.session.store import Store
from app.storage.engine import Database, make_engine
from app.storage.migrate import upgrade
from app.storage.statements import Statements
from app.storage.text_search import TextFilter
from app.storage.writer import Writer

OF_SESSION, AT_ONCE, ROUNDS, COMMITS = 20, 2_000, 40, 500


class Speech:
    def __init__(self) -> None:
        self._random = random.Random(1)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        self.words = ["".join(self._random.choices(letters, k=self._random.randint(3, 11))) for _ in range(20_000)]
        self.signs = [chr(0x4E00 + number) for number in range(3_000)]
        self._weights = {len(of): list(accumulate(1 / (rank + 10) for rank in range(len(of)))) for of in (self.words, self.signs)}

    def message(self, number: int) -> str:
        length = int(self._random.lognormvariate(4.2, 0.9)) + 1
        of, between = (self.signs, "") if number % 10 == 0 else (self.words, " ")
        return between.join(self._random.choices(of, cum_weights=self._weights[len(of)], k=length))


def fill(database: Database, sql: Statements, speech: Speech, messages: int) -> None:
    def some(connection: object, first: int) -> None:
        sessions, infos, parts = [], [], []
        for number in range(first, min(first + AT_ONCE, messages)):
            session, message = f"ses_{number // OF_SESSION}", f"msg_{number}"
            if number % OF_SESSION == 0:
                row = {"id": session, "project_id": "p", "directory": f"/projects/{number // 10_000}", "parent_id": None}
                sessions.append(
                    {**row, "owner": "", "title_folded": "t", "updated": 1, "body": '{"title":"t"}', "reverting": False}
                )
            ids = {"session_id": session, "id": message, "role": "assistant" if number % 4 else "user", "parent_id": None}
            infos.append({**ids, "open": False, "boundary": False, "input_hash": None, "body": "{}", "live_body": None})
            body = orjson.dumps({"type": "text", "text": speech.message(number)}).decode()
            part = {"session_id": session, "message_id": message, "id": f"prt_{number}", "type": "text", "body": body}
            parts.append({**part, "live_body": None, "snapshot": None})
        texts = [text_row(part, first + place) for place, part in enumerate(parts)]
        for statement, rows in (
            (sql.put_session, sessions),
            (sql.put_message, infos),
            *sql.put_parts(parts, texts),
        ):
            if rows:
                connection.execute(statement, rows)  # type: ignore[attr-defined]

    for first in range(0, messages, AT_ONCE):
        with database.engine.begin() as connection:
            some(connection, first)


def is_empty(database: Database) -> bool:
    with database.engine.begin() as connection:
        return connection.execute(text("SELECT count(*) FROM part_text")).scalar_one() == 0


def size(database: Database) -> str:
    with database.engine.begin() as connection:
        if database.dialect == "postgresql":
            query = text("SELECT pg_total_relation_size(:name)")
            names = ("part", "part_text", "part_text_trigrams")
            sizes = {name: connection.execute(query, {"name": name}).scalar_one() for name in names}
            return ", ".join(f"{name} {of / 1e6:.0f} MB" for name, of in sizes.items())
        tables = "SELECT name, sum(pgsize) FROM dbstat WHERE name LIKE 'part%' GROUP BY name ORDER BY 2 DESC LIMIT 4"
        return ", ".join(f"{name} {of / 1e6:.0f} MB" for name, of in connection.execute(text(tables)))


async def measure(search: MessageSearch, what: str, query: Callable[[int], str], **wanted: object) -> None:
    times, found = [], 0
    for turn in range(ROUNDS):
        begun = time.perf_counter()
        results, _ = await search.find(words_of(query(turn)), TextFilter(words=(), limit=20, **wanted))  # type: ignore[arg-type]
        times.append((time.perf_counter() - begun) * 1000)
        found += len(results)
    p95 = statistics.quantiles(times, n=20)[-1]
    print(f"{what:34} p50 {statistics.median(times):6.1f} ms  p95 {p95:6.1f} ms  {found / ROUNDS:4.1f} results")


async def measure_commits(store: Store) -> None:
    """Of one part each, in turn with a text to be found and with none."""
    said = Speech().message
    for size, commits in ((500, COMMITS), (5_000, COMMITS // 5), (50_000, COMMITS // 20), (100_000, COMMITS // 20)):
        times: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(2 * commits):
            text = ""
            while len(text) < size:
                text += said(1) + " "
            times[turn % 2 == 0].append(await commit_seconds(store, f"prt_commit_{turn}", text[:size], is_found=turn % 2 == 0))
        found, other = (1000 * statistics.median(times[is_found]) for is_found in (True, False))
        most = 1000 * statistics.quantiles(times[True], n=20)[-1]
        print(f"commit of {size:6} characters p50 {found:6.2f} ms  p95 {most:6.2f} ms  not searched p50 {other:6.2f} ms")
        removed = store.change("ses_0", "/projects/0")
        for turn in range(2 * commits):
            removed.remove_part("msg_0", f"prt_commit_{turn}")
        await store.commit(removed)


async def commit_seconds(store: Store, part_id: str, text: str, *, is_found: bool) -> float:
    change = store.change("ses_0", "/projects/0")
    part = TextPart(session_id="ses_0", message_id="msg_0", id=part_id, text=text, synthetic=None if is_found else True)
    begun = time.perf_counter()
    change.put_part(part)
    await store.commit(change)
    return time.perf_counter() - begun


async def main(url: str, messages: int) -> None:
    engine = make_engine(url)
    upgrade(engine)
    database, speech = Database(url), Speech()
    sql = Statements(database.dialect)
    sequencer = Sequencer(MemoryBus())
    store = Store(database, sql, Writer(database, sql, sequencer), sequencer)
    if is_empty(database):
        begun = time.perf_counter()
        fill(database, sql, speech, messages)
        print(f"{messages} messages stored in {time.perf_counter() - begun:.0f} s")
        if database.dialect == "postgresql":
            with database.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                connection.execute(text("VACUUM ANALYZE"))
    print(size(database))
    search, words, signs = MessageSearch(store), [word for word in speech.words if len(word) > 4], speech.signs
    await measure(search, "common word", lambda turn: words[turn])
    await measure(search, "rare word", lambda turn: words[-1 - turn])
    await measure(search, "two words", lambda turn: f"{words[turn]} {words[50 + turn]}")
    await measure(search, "common and rare word", lambda turn: f"{words[turn]} {words[-1 - turn]}")
    await measure(search, "two Chinese characters", lambda turn: signs[turn] + signs[turn + 5])
    await measure(search, "two rare Chinese characters", lambda turn: signs[-1 - turn] + signs[-2 - turn])
    await measure(search, "two letters", lambda turn: words[turn][:2])
    await measure(search, "two letters that are nowhere", lambda turn: "qzvxj"[turn % 5] + "9")
    await measure(search, "no hit", lambda turn: f"zzq{turn}xx")
    await measure(search, "word, role", lambda turn: words[turn], role="user")
    await measure(search, "word, one session", lambda turn: words[turn], session_id="ses_5")
    await measure(search, "word, another session", lambda turn: words[turn], session_id="ses_0")
    await measure(search, "rare word, one directory", lambda turn: words[-1 - turn], directory="/projects/2")
    await measure(search, "word, one directory", lambda turn: words[turn], directory="/projects/2")
    await measure(search, "word, kind that is nowhere", lambda turn: words[turn], kind="reasoning")
    await measure(search, "word, since", lambda turn: words[turn], since=messages - 500.0)
    await measure(search, "word, until", lambda turn: words[turn], until=messages / 2)
    await measure(search, "rare word, until", lambda turn: words[-1 - turn], until=messages / 10)
    await measure_commits(store)
    database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--url")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(chosen.url or f"sqlite:///{directory}/opensession.db", chosen.messages))
