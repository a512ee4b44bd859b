"""Kills of `opensession backup` and `restore` at each change of a name: afterwards all is as before, or as it should be."""

import os
import shutil
import signal
from functools import partial
from itertools import count
from pathlib import Path

import forked_program
from figures import Figure
from git_files import put_file
from running_server import ROOT, Forked, clean_environment

from app.record.engine import make_engine
from app.record.migrate import upgrade
from app.transfer.backup.placing import finish_restore
from app.transfer.backup.restoring import restore


def fill(directory: Path, what: str, *names: str) -> Path:
    for name in names:
        put_file(directory / name, what)
    engine = make_engine(f"sqlite:///{directory / 'opensession.db'}")
    upgrade(engine)
    engine.dispose()
    return directory


def held(directory: Path) -> dict[str, str]:
    """The files, but databases and what was moved aside."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("opensession.db"))
    found = {str(path.relative_to(directory)): path.read_text() for path in files}
    return {name: text for name, text in found.items() if not name.startswith("before-restore-")}


def opensession(data: Path, kill_at: int, below: Path, *words: str | Path) -> bool:
    """Whether it was killed."""
    environment = clean_environment(data.parent, OPENSESSION_DATA_DIR=str(data), PYTHONPATH=str(ROOT))
    log = data.parent / "log"
    files = [Path(os.devnull), log, log]
    process = Forked([*map(str, words)], ROOT, environment, files, partial(forked_program.run_until_killed, kill_at, below))
    ended = process.wait(120)
    assert ended in (0, -signal.SIGKILL), log.read_text()
    return ended != 0


def test_a_killed_backup_leaves_no_backup_and_the_next_one_works(tmp_path: Path, figure: Figure) -> None:
    data, target = fill(tmp_path / "data", "text", "auth.json", "tool-output/tool_1"), tmp_path / "kept" / "backup.tgz"
    (tmp_path / "kept").mkdir()
    for moment in count(1):
        if not opensession(data, moment, target.parent, "backup", target):
            break
        if target.exists():  # what is left to do is to remove the scratch directory
            target.unlink()
    kills = moment - 1
    assert kills >= 3
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert not opensession(tmp_path / "elsewhere", 0, tmp_path, "restore", target)
    assert held(tmp_path / "elsewhere") == held(data)
    figure(f"backup: {kills} kills, one at each change of a name")


def test_a_killed_restore_is_undone_or_finished(tmp_path: Path, figure: Figure) -> None:
    new = fill(tmp_path / "new", "new", "auth.json", "tool-output/tool_1")
    backup = tmp_path / "backup.tar.gz"
    assert not opensession(new, 0, tmp_path, "backup", backup)
    old = fill(tmp_path / "old", "old", "auth.json", "tokens.json", "snapshot/p/q/HEAD")
    outcomes = {"old": 0, "new": 0}
    for moment in count(1):
        data = Path(shutil.copytree(old, tmp_path / f"data{moment}"))
        if not opensession(data, moment, data, "restore", backup, "--force"):
            break
        finish_restore(data)
        found = held(data)
        assert found in (held(old), held(new)), moment
        outcomes["old" if found == held(old) else "new"] += 1
        assert not list(data.glob(".rest*"))
        restore(backup, data, "sqlite", lambda: None, lambda *_: None, force=True)
        assert held(data) == held(new)
    assert held(data) == held(new)
    assert outcomes["old"] >= 3 and outcomes["new"] >= 5
    figure(f"{moment - 1} kills of a restore: {outcomes['old']} undone, {outcomes['new']} finished, none half done")
