"""Eight clients do random things with ten sessions of a real server, which may have a database that refuses now and then.

What is read in the end is what the event stream told, in its order; what was acknowledged is there; every prompt is answered or
closed, every call ended, and nothing runs or waits on. OPENSESSION_SEED repeats one run, as far as chance lets it.
"""

import asyncio
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import keyword_server
import pytest
from event_fold import EventFold, KnownSession, folding
from figures import Figure
from long_form import LONG, SLACK
from polling import until
from random_clients import ClientLog, RandomClients
from running_server import ROOT, RunningServer, free_port, serving, serving_again, this_checkout

SEEDS = [int(os.environ["OPENSESSION_SEED"])] if "OPENSESSION_SEED" in os.environ else list(range(1, 11 if LONG else 2))
SECONDS = 60.0 if LONG else 3.0
CLIENTS = 8
PATIENCE = 30.0 * SLACK
"""Seconds after which a request hangs."""
IDLE_WITHIN = 3.0 * SLACK
FINISHED_WITHIN = 10.0 * SLACK
"""The same where the end of a turn could not be stored: it is tried again after 1, 2, 4 … seconds."""
CONFIG = '{"permission": {"bash": {"*": "allow", "touch *": "ask"}}}'
THE_END = "The end"
SHOWN = 60
"""Lines of a session's history, when something is wrong with it."""


@dataclass
class Outcome:
    """Of one run: `reads` by session, the folds of the streams, seconds until all was idle."""

    log: ClientLog
    reads: dict[str, "Read"]
    folds: dict[str, EventFold]
    idle_after: float
    statuses: dict[str, Any]
    waiting: list[dict[str, Any]]


@dataclass(frozen=True)
class Read:
    info: dict[str, Any]
    messages: list[dict[str, Any]]
    todos: list[dict[str, Any]]
    diff: list[dict[str, Any]]


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_clients_and_the_event_stream_agree(tmp_path: Path, figure: Figure, seed: int) -> None:
    with keyword(tmp_path) as server:
        outcome = await run(server, seed)
    check(outcome, (tmp_path / "server.log").read_text(), seed)
    figure(summary(outcome, seed))


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_while_the_database_refuses_commits(tmp_path: Path, figure: Figure, seed: int) -> None:
    refusals = tmp_path / "refusals"
    with keyword(tmp_path, REFUSALS_FILE=str(refusals), REFUSALS_SEED=str(seed)) as server:
        outcome = await run(server, seed, refusals)
        server.process.kill()
        server.process.wait()
    with serving_again(this_checkout()[0], tmp_path, free_port(), this_checkout()[1]) as server:
        async with httpx2.AsyncClient(base_url=server.base, timeout=60) as http:
            after = {session: await read(http, session) for session in outcome.reads}
    log = (tmp_path / "server.log").read_text()
    assert keyword_server.REFUSED in log
    check(outcome, log, seed)
    assert after == outcome.reads
    figure(f"{summary(outcome, seed)}; {log.count(keyword_server.REFUSED)} refusals in the log")


def keyword(directory: Path, **environment: str) -> Any:
    base = this_checkout()[1]
    path = f"{ROOT}:{ROOT / 'tests' / 'support'}"
    settings = {"OPENCODE_CONFIG_CONTENT": CONFIG, "OPENSESSION_MAX_WAITING_PROMPTS": "1000"}
    launcher = [sys.executable, str(ROOT / "tests" / "support" / "keyword_server.py"), "PORT"]
    return serving(launcher, directory, {**base, **settings, **environment, "PYTHONPATH": path})


async def run(server: RunningServer, seed: int, refusals: Path | None = None) -> Outcome:
    print(f"OPENSESSION_SEED={seed}")
    limits = httpx2.Limits(max_connections=None)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=server.base, timeout=PATIENCE, limits=limits))
        folds = {name: await stack.enter_async_context(folding(http, query)) for name, query in STREAMS.items()}
        if refusals:
            refusals.touch()
        clients = RandomClients(http, folds["whole parts"], seed, frozenset({503} if refusals else ()))
        await clients.run(CLIENTS, SECONDS)
        if refusals:
            refusals.unlink()
        idle_after = await idle(http, clients, folds.values())
        statuses, waiting = (await http.get("/session/status")).json(), await asked(http)
        (await http.post("/session", json={"title": THE_END})).raise_for_status()
        await asyncio.gather(*(ended(fold) for fold in folds.values()))
        reads = {session["id"]: await read(http, session["id"]) for session in (await http.get("/session")).json()}
        return Outcome(clients.log, reads, folds, idle_after, statuses, waiting)


STREAMS = {"whole parts": "", "deltas": "?parts=delta"}


async def idle(http: httpx2.AsyncClient, clients: RandomClients, folds: Collection[EventFold]) -> float:
    """Seconds until nothing runs, and the streams have told so; what is asked meanwhile is answered. Gives up after ten times
    what it may take."""
    began = time.monotonic()
    while time.monotonic() - began < 10 * IDLE_WITHIN:
        waiting = await asked(http)
        if not waiting and not (await http.get("/session/status")).json() and not any(map(unfinished, folds)):
            break
        await asyncio.gather(*(clients.answer(request["id"]) for request in waiting))
        await asyncio.sleep(0.02)
    return time.monotonic() - began


def unfinished(fold: EventFold) -> bool:
    return bool(fold.waiting) or any(session.status != "idle" for session in fold.sessions.values())


async def asked(http: httpx2.AsyncClient) -> list[dict[str, Any]]:
    return [request for kind in ("permission", "question") for request in (await http.get(f"/{kind}")).json()]


async def ended(fold: EventFold) -> None:
    await until(lambda: any(session.info["title"] == THE_END for session in fold.sessions.values()))


async def read(http: httpx2.AsyncClient, session: str) -> Read:
    paths = ("", "/message", "/todo", "/diff")
    return Read(*[(await http.get(f"/session/{session}{path}")).raise_for_status().json() for path in paths])


# What must hold.


def check(outcome: Outcome, log: str, seed: int) -> None:
    wrong: dict[str, list[str]] = {}

    def note(session: str, *lines: str) -> None:
        wrong.setdefault(session, []).extend(lines)

    refused = keyword_server.REFUSED in log
    note("", *outcome.log.wrong, *tracebacks(log), *no_more(outcome, FINISHED_WITHIN if refused else IDLE_WITHIN))
    for name, fold in outcome.folds.items():
        note("", *(f"{name}: {line}" for line in fold.wrong))
        for part in fold.returned.keys() - outcome.log.patched:
            note(fold.returned[part], f"{name}: {part} is told of after it was removed")
        for session, found in outcome.reads.items():
            note(session, *(f"{name}: {line}" for line in differences(found, fold.sessions.get(session))))
    for session, found in outcome.reads.items():
        note(session, *open_records(found.messages, outcome.log.cut), *unanswered(found, session, outcome))
    note("", *lost(outcome), *wrongly_ordered(outcome), *wrongly_failed(outcome, refused))
    if any(wrong.values()):
        pytest.fail(report(wrong, outcome, seed), pytrace=False)


def report(wrong: dict[str, list[str]], outcome: Outcome, seed: int) -> str:
    """All that is wrong, and what happened to the first session with which something is."""
    lines = [f"{session or 'server'}: {line[:1500]}" for session, found in wrong.items() for line in dict.fromkeys(found)]
    session = next((session for session, found in wrong.items() if session and found), "")
    fold = outcome.folds["whole parts"]
    clients, stream = outcome.log.history.get(session, []), fold.history.get(session, [])
    history = [f"What clients did with {session}:", *clients[-SHOWN:], f"What the stream told of {session}:", *stream[-SHOWN:]]
    return "\n".join([f"OPENSESSION_SEED={seed}: {len(lines)} findings", *lines[:SHOWN], *(history if session else [])])


def tracebacks(log: str) -> list[str]:
    """Errors in the log but for refusals and what follows from them, each in short."""
    blocks = re.split(r"(?m)^(?=\d{4}-\d\d-\d\d )", log)
    errors = [block for block in blocks if re.search(r"^ *Traceback|^\S+ \S+ ERROR (?!client:)", block, re.MULTILINE)]
    follows = rf"{keyword_server.REFUSED}|got no answer that could be stored" if keyword_server.REFUSED in log else "$^"
    return [in_short(block) for block in errors if not re.search(follows, block)]


def in_short(error: str) -> str:
    """Without its time: what was logged, where in the code, what was raised."""
    first, *others = error.strip().splitlines()
    places = re.findall(r'File ".*?/(app/\S+)", line (\d+)', error)
    return " | ".join([first.partition(",")[2][4:], *(f"{file}:{line}" for file, line in places), *others[-1:]])


def no_more(outcome: Outcome, within: float) -> list[str]:
    """Nothing runs or waits in the end."""
    late = [f"idle after {outcome.idle_after:.1f} s"] if outcome.idle_after > within else []
    folds = outcome.folds.items()
    known = [(name, *each) for name, fold in folds for each in fold.sessions.items()]
    streams = [f"{name}: {session} is {each.status}" for name, session, each in known if each.status != "idle"]
    folded = [f"{name}: {request} waits" for name, fold in folds for request in fold.waiting]
    return [*late, *streams, *folded, *(f"{kept} is left" for kept in (*outcome.statuses, *outcome.waiting))]


def differences(found: Read, known: KnownSession | None) -> list[str]:
    """Between what is read of a session and what the stream told of it."""
    if known is None:
        return ["the stream did not tell of it"]
    pairs = {"session": (found.info, known.info), "todos": (found.todos, known.todos), "diff": (found.diff, known.diff)}
    problems = [f"{what}: read {a}, streamed {b}" for what, (a, b) in pairs.items() if a != b]
    streamed = [message.as_read() for message in known.messages.values()]
    read_ids, streamed_ids = ids(found.messages), ids(streamed)
    if read_ids != streamed_ids:
        problems.append(f"messages: read {read_ids}, streamed {streamed_ids}")
    elif found.messages != streamed:
        problems += [line for pair in zip(found.messages, streamed, strict=True) for line in message_differences(*pair)]
    return problems


def message_differences(found: dict[str, Any], streamed: dict[str, Any]) -> list[str]:
    info = [f"read {found['info']}, streamed {streamed['info']}"] if found["info"] != streamed["info"] else []
    read_parts, streamed_parts = ({part["id"]: part for part in message["parts"]} for message in (found, streamed))
    if list(read_parts) != list(streamed_parts):
        info.append(f"parts of {found['info']['id']}: read {list(read_parts)}, streamed {list(streamed_parts)}")
    both = read_parts.keys() & streamed_parts.keys()
    return [*info, *(f"read {read_parts[p]}, streamed {streamed_parts[p]}" for p in both if read_parts[p] != streamed_parts[p])]


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [message["info"]["id"] for message in messages]


def open_records(messages: list[dict[str, Any]], cut: set[int]) -> list[str]:
    problems = []
    for message in messages:
        info, kinds = message["info"], Counter(part["type"] for part in message["parts"])
        if info["role"] == "assistant" and "completed" not in info["time"]:
            problems.append(f"{info['id']} is not completed")
        unfinished = kinds["step-start"] - kinds["step-finish"]
        if unfinished and info["time"]["created"] not in cut and not (unfinished == 1 and "error" in info):
            problems.append(f"{info['id']} has {kinds['step-start']} step-start and {kinds['step-finish']} step-finish: {info}")
        running = [part for part in message["parts"] if part["type"] == "tool" and "end" not in part["state"].get("time", {})]
        problems += [f"a call has not ended: {part}" for part in running]
    return problems


def unanswered(found: Read, session: str, outcome: Outcome) -> list[str]:
    """Prompts that were accepted and are gone, or stand there without an answer, though nobody removed them."""
    known = outcome.folds["whole parts"].sessions.get(session)
    if known is None:
        return []
    announced, problems, there = list(known.announced), [], set(ids(found.messages))
    for prompt in outcome.log.prompts:
        if prompt.session != session or prompt.id in known.removed:
            continue
        if prompt.id not in there:
            problems.append(f"{prompt} was accepted and is gone")
        elif prompt.answered and not is_answered(prompt.id, announced, known):
            problems.append(f"{prompt} has no answer")
    return problems


def wrongly_failed(outcome: Outcome, may_refuse: bool) -> list[str]:
    """Prompts that got an error for an answer, though neither they nor their session were removed."""
    sessions = outcome.folds["whole parts"].sessions
    return [
        f"{prompt} was answered with {answer}"
        for prompt, answer in outcome.log.failed
        if prompt.session in sessions
        and prompt.id not in sessions[prompt.session].removed
        and not (may_refuse and answer["name"] == "NoAnswerError")
    ]


def is_answered(prompt: str, announced: list[str], known: KnownSession) -> bool:
    """By an answer to it, or to a prompt after it, that may have been removed since."""
    later = announced[announced.index(prompt) :]
    infos = [known.announced[message] for message in later]
    return any(info["role"] == "assistant" and info["parentID"] in later and "completed" in info["time"] for info in infos)


def lost(outcome: Outcome) -> list[str]:
    """What was acknowledged, and not announced or not so."""
    fold, known = outcome.folds["whole parts"], outcome.log
    facts = [f"{fact} was acknowledged and not announced" for fact in known.facts if not announced(fact, fold)]
    deleted = [f"{session} was deleted and is there" for session in known.deleted if session in outcome.reads]
    removed = [
        f"{item} of {session} was removed and is there"
        for session, item in known.removed
        if session in fold.sessions
        and item in present(outcome.reads.get(session))
        and item not in known.sent_twice | known.patched
    ]
    replies = [f"{request}: {count} replies were accepted" for request, count in known.replies.items() if count > 1]
    doubled = [f"{request}: the stream told of {seen}" for request, seen in fold.replies.items() if len(seen) > 1]
    return [*facts, *deleted, *removed, *replies, *doubled]


def announced(fact: tuple[str, ...], fold: EventFold) -> bool:
    if fact[0] == "message":
        return fact[1] not in fold.sessions or fact[2] in fold.sessions[fact[1]].announced
    return fact in fold.seen


def present(found: Read | None) -> set[str]:
    messages = found.messages if found else []
    return {*ids(messages), *(part["id"] for message in messages for part in message["parts"])}


def wrongly_ordered(outcome: Outcome) -> list[str]:
    """Pages that were read on the way, in another order than the stream's."""
    problems = []
    for session, page in outcome.log.pages:
        known = outcome.folds["whole parts"].sessions.get(session)
        order = [message for message in known.announced if message in set(page)] if known else []
        if [message for message in page if message in set(order)] != order:
            problems.append(f"a page of {session} was {page}, the stream told of {order}")
    return problems


def summary(outcome: Outcome, seed: int) -> str:
    counts = outcome.log
    done = f"{len(counts.removed)} messages and parts removed, {len(counts.deleted)} sessions deleted"
    made = f"{len(counts.prompts)} prompts accepted, {len(counts.sessions)} sessions"
    return f"seed {seed}: {sum(counts.counts.values())} requests, {made}, {done}; idle after {outcome.idle_after:.2f} s"
