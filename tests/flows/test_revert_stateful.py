"""Random sequences of agent turns, a person's edits, reverts, unreverts and cleanups, against a model of what must hold.

- A revert brings each file of the reverted patches to what it was before the first of them, and touches no other.
- An unrevert brings the files that the revert touched to what they were before it, and touches no other.
- Messages stay until the cleanup, then those reverted go and no other.

A file in whose place a directory with other files stands, or a file where its directory was, cannot be put back: it is then left
as it is, and named. All in a git checkout and in a directory without git. OPENSESSION_LONG=1 runs 500 sequences of each; a
failure names the seed of its sequence.
"""

import os
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import session_parts
from git_files import files, server_git, server_git_outside
from random_edits import edit, put
from running_app import RunningApp, running_app

from app.project.location import Location
from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.snapshots import Snapshots, snapshot_dir
from app.schema import part as parts
from app.schema.message import Message
from app.schema.session import CreateInput, RevertInput, Session
from app.sessions.revert import Reverts
from app.util import ids

SEQUENCES = 500 if os.environ.get("OPENSESSION_LONG") else 15
OPERATIONS = 12
AT_ONCE = 5

Files = dict[str, object]


@dataclass
class Step:
    """A message of the conversation; `before` and `changed` are the model's own record of what its patch is about."""

    message: str
    parts: list[str]
    is_prompt: bool = False
    before: Files = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


@dataclass
class Standing:
    """The revert in force: where the messages are cut, and how the files that it touched were before it."""

    at: int
    part: int | None
    touched: Files


class Sequence:
    def __init__(self, app: RunningApp, root: Path, seed: int, *, has_git: bool) -> None:
        self.random = Random(seed)
        self.root = root
        root.mkdir()
        if has_git:
            subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        (root / (".gitignore" if has_git or seed % 2 else ".ignore")).write_text("*.log\n")
        (root / "a").write_text("first\n")
        self.store = app.services.store
        self.sessions = app.services.sessions
        self.reverts = Reverts(self.store)
        self.location = Location(str(root), "global", str(root) if has_git else "/", has_git)
        git = server_git(root) if has_git else server_git_outside(root)
        self.snapshots = Snapshots(snapshot_dir(app.data_dir, "global", root), git, root)
        self.session = ""
        self.steps: list[Step] = []
        self.standing: Standing | None = None

    async def run(self) -> None:
        self.session = (await self.sessions.create(self.location, CreateInput())).id
        await self.agent_turn()
        for _ in range(OPERATIONS):
            await (self.next_act() if self.steps else self.agent_turn)()

    def next_act(self) -> Callable[[], Awaitable[None]]:
        """Between a revert and what undoes it a person is busy most of the time."""
        acts = [self.agent_turn, self.person, self.revert, self.unrevert, self.dry_run, self.clean]
        weights = [1, 6, 3, 4, 1, 1] if self.standing else [4, 4, 6, 1, 1, 0]
        return self.random.choices(acts, weights)[0]

    # What is done.

    async def agent_turn(self) -> None:
        await self.clean()
        await self.store_message(Step(ids.ascending("message"), [], is_prompt=True))
        for _ in range(self.random.randint(1, 3)):
            await self.agent_step()
            if self.random.random() < 0.2:
                await self.person()

    async def agent_step(self) -> None:
        tree, before = await self.snapshots.track(), files(self.root)
        for _ in range(self.random.randint(0, 3)):
            edit(self.root, self.random)
        after_tree, after = await self.snapshots.track(), files(self.root)
        patched = {str(path.relative_to(self.root)) for path in await self.snapshots.patch(tree, after_tree)}
        changed = {name for name in differing(before, after) if not name.endswith(".log")}
        assert patched == changed
        await self.store_message(Step(ids.ascending("message"), [], before=before, changed=changed), tree, after_tree)

    async def person(self) -> None:
        """Takes back by hand some of what the agent did, edits files that it changed, or any."""
        changed = [(step, name) for step in self.steps for name in sorted(step.changed)]
        for _ in range(self.random.randint(1, 3)):
            step, name = self.random.choice(changed) if changed else (None, "")
            match self.random.choice(["take back", "edit that", "edit any"] if changed else ["edit any"]):
                case "take back" if step is not None:
                    put(self.root, name, step.before.get(name))
                case "edit that":
                    put(self.root, name, ("file", self.random.randbytes(3), False))
                case _:
                    edit(self.root, self.random)

    async def revert(self) -> None:
        at, part = self.random_target()
        step = self.steps[at]
        wanted = RevertInput(message_id=step.message, part_id=None if part is None else step.parts[part])
        before = files(self.root)
        if session := await self.attempt(self.reverts.revert(self.location, self.snapshots, self.session, wanted)):
            self.check_reverted(session, before, at, part)

    async def unrevert(self) -> None:
        before = files(self.root)
        if session := await self.attempt(self.reverts.unrevert(self.location, self.snapshots, self.session)):
            assert session.revert is None
            self.check(before, self.standing.touched if self.standing else {})
            self.standing = None

    async def attempt(self, work: Awaitable[Session]) -> Session | None:
        """The session after it, whose messages stay; None where it is refused, as only taking back an earlier revert can be."""
        before, messages = files(self.root), await self.stored()
        try:
            session = await work
        except SnapshotFailed:
            assert self.standing is not None
            assert all(self.is_blocked(name) or before.get(name) == wanted for name, wanted in self.standing.touched.items())
            assert files(self.root) == before
            return None
        assert await self.stored() == messages
        return session

    async def dry_run(self) -> None:
        at, _ = self.random_target()
        before, session = files(self.root), await self.store.session(self.session)
        wanted = RevertInput(message_id=self.steps[at].message, dry_run=True)
        await self.reverts.revert(self.location, self.snapshots, self.session, wanted)
        assert files(self.root) == before
        assert await self.store.session(self.session) == session

    async def clean(self) -> None:
        before = files(self.root)
        await self.reverts.clean_up(self.location, self.session)
        assert files(self.root) == before
        if self.standing is not None:
            self.cut(self.standing)
            self.standing = None
        assert await self.stored() == [(step.message, step.parts) for step in self.steps]
        assert (await self.store.session(self.session)).revert is None

    # What must hold.

    def check_reverted(self, session: Session, before: Files, at: int, part: int | None) -> None:
        assert session.revert is not None
        start = at if part is not None else self.prompt_of(at)
        assert session.revert.message_id == self.steps[start].message
        assert (session.revert.part_id is not None) == (part is not None)
        refused = {item.file for item in session.revert.not_reverted or []}
        unreverted = self.after_unrevert(before)
        wanted: Files = {}
        for step in self.steps[start:]:
            wanted |= {name: step.before.get(name) for name in step.changed if name not in wanted}
        assert all(self.is_blocked(name) for name in refused)
        self.check(before, {**unreverted, **{name: state for name, state in wanted.items() if name not in refused}})
        touched = {name: unreverted.get(name, before.get(name)) for name, state in wanted.items() if name not in refused}
        touched = {name: state for name, state in touched.items() if state != wanted[name]}
        self.standing = Standing(start, part, touched)

    def after_unrevert(self, before: Files) -> Files:
        """What the first half of a second revert does: the files it touches, as it leaves them."""
        touched = self.standing.touched if self.standing else {}
        return {name: before.get(name) if self.is_blocked(name) else state for name, state in touched.items()}

    def check(self, before: Files, wanted: Files) -> None:
        """Each of these files is as wanted, or something stands in its way; each other is as it was."""
        now = files(self.root)
        for name in before.keys() | now.keys() | wanted.keys():
            if name in wanted and now.get(name) != wanted[name]:
                assert self.is_blocked(name), f"{name} is {now.get(name)}, not {wanted[name]}"
                assert now.get(name) == before.get(name), f"{name} was touched though something stands in its way"
            elif name not in wanted:
                assert now.get(name) == before.get(name), f"{name} was touched: {before.get(name)} became {now.get(name)}"

    def is_blocked(self, name: str) -> bool:
        """A directory that is not empty stands at the path, or a file or link where a directory of it was."""
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            return any(path.iterdir())
        folders = [self.root / folder for folder in Path(name).parents[:-1]]
        return any(folder.is_symlink() or folder.is_file() for folder in folders)

    # The conversation.

    def random_target(self) -> tuple[int, int | None]:
        """A message, or the call in one: its place, and the place of the part."""
        at = self.random.randrange(len(self.steps))
        has_call = len(self.steps[at].parts) > 2 and not self.steps[at].is_prompt
        return (at, 2) if has_call and self.random.random() < 0.4 else (at, None)

    def prompt_of(self, at: int) -> int:
        return next(location for location in range(at, -1, -1) if self.steps[location].is_prompt)

    def cut(self, standing: Standing) -> None:
        kept = self.steps[: standing.at]
        if standing.part is not None:
            cut = self.steps[standing.at]
            kept.append(Step(cut.message, cut.parts[: standing.part]))
        self.steps = kept

    async def stored(self) -> list[tuple[str, list[str]]]:
        _, history = await self.store.session_and_messages(self.session)
        return [(message.info.id, [part.id for part in message.parts]) for message in history]

    async def store_message(self, step: Step, tree: str = "", after: str = "") -> None:
        if step.is_prompt:
            await self.put(step, session_parts.user(step.message, self.session), self.text(step.message))
            return
        prompt = next(each.message for each in reversed(self.steps) if each.is_prompt)
        message = session_parts.assistant(step.message, prompt, self.session, finish="tool-calls")
        await self.put(step, message, *self.step_parts(step, tree, after))

    async def put(self, step: Step, message: Message, *stored: parts.Part) -> None:
        await self.store.write(self.session, self.location.directory, session_parts.putting(message, *stored))
        step.parts.extend(part.id for part in stored)
        self.steps.append(step)

    def step_parts(self, step: Step, tree: str, after: str) -> list[parts.Part]:
        time, of = parts.CompletedTime(start=1, end=2), self.of
        state = parts.Completed(input={}, output="", title="", metadata={}, time=time)
        made: list[parts.Part] = [
            parts.StepStartPart(**of(step.message), snapshot=tree),
            self.text(step.message),
            parts.ToolPart(**of(step.message), call_id="call", tool="bash", state=state),
            parts.StepFinishPart(**of(step.message), reason="tool-calls", snapshot=after, cost=0, tokens=parts.Tokens()),
        ]
        changed = [str(self.root / name) for name in sorted(step.changed)]
        return [*made, parts.PatchPart(**of(step.message), hash=tree, files=changed)] if changed else made

    def of(self, message: str) -> dict[str, str]:
        return {"id": ids.ascending("part"), "session_id": self.session, "message_id": message}

    def text(self, message: str) -> parts.TextPart:
        return parts.TextPart(**self.of(message), text="hello")


def differing(one: Files, other: Files) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@pytest.mark.parametrize("has_git", [True, False], ids=["git", "without"])
@pytest.mark.parametrize("first", range(0, SEQUENCES, AT_ONCE))
async def test_revert_and_unrevert_hold_their_word_whatever_happens(tmp_path: Path, first: int, has_git: bool) -> None:
    async with running_app(tmp_path) as app:
        for seed in range(first, first + AT_ONCE):
            try:
                await Sequence(app, tmp_path / str(seed), seed, has_git=has_git).run()
            except Exception as error:
                raise AssertionError(f"the sequence of seed {seed} failed: {error}") from error
