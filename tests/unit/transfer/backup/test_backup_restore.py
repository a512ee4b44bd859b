"""`opensession backup` and `restore` without a server: what is refused, what is found damaged, what is kept."""

import io
import json
import shutil
import stat
import tarfile
from pathlib import Path

import pytest
from git_files import put_file
from older_database import upgrade_to
from sqlalchemy import text
from typer.testing import CliRunner

from app import cli
from app.record.engine import make_engine
from app.record.migrate import HEAD, revision
from app.transfer.backup.manifest import FORMAT, MANIFEST
from app.util.data_files import ServerLocks

SECRET = {"anthropic": {"type": "api", "key": "k"}}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "monday.tar.gz"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_database: Path) -> Path:
    """A data directory that is set, with a database, keys, an output and what belongs in no backup."""
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    shutil.copy(migrated_database, directory / "opensession.db")
    put(directory / "auth.json", json.dumps(SECRET))
    put(directory / "audit.log", "{}\n", 0o640)
    put(directory / "tool-output" / "tool_1", "long")
    for name in ("auth.lock", ".auth-x", "volume", "servers/a.lock", "sandbox/home/cache", "before-restore-1/auth.json"):
        put(directory / name, "")
    use(directory, monkeypatch)
    return directory


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere"


def use(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(directory))


def put(path: Path, content: str, mode: int = 0o600) -> None:
    put_file(path, content).chmod(mode)


def run(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def done(*words: str | Path) -> str:
    code, output = run(*words)
    assert code == 0, output
    return output


def refused(*words: str | Path) -> str:
    code, output = run(*words)
    assert code == 1, output
    return output


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def archive_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_what_belongs_to_it_is_restored_with_its_modes(
    data: Path, target: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("backup", target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert "exists already" in refused("backup", target)
    assert "in the data directory" in refused("backup", data / target.name)
    use(elsewhere, monkeypatch)
    done("restore", target)
    modes = {str(path.relative_to(elsewhere)): stat.S_IMODE(path.stat().st_mode) for path in (elsewhere, *elsewhere.rglob("*"))}
    private = dict.fromkeys(("auth.json", "opensession.db", "tool-output/tool_1"), 0o600)
    outputs = stat.S_IMODE((data / "tool-output").stat().st_mode)
    assert modes == {".": 0o700, "audit.log": 0o640, "tool-output": outputs, **private}
    assert json.loads((elsewhere / "auth.json").read_text()) == SECRET


@pytest.mark.parametrize("name", ["tool", "auth", "audit.log", "data/tool", "data/own", "data/auth.jso"])
def test_a_database_of_any_name_keeps_nothing_else_out(
    name: str, data: Path, elsewhere: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside the data directory, or in it."""
    place = data / name.removeprefix("data/") if name.startswith("data/") else elsewhere / name
    place.parent.mkdir(exist_ok=True)
    (data / "opensession.db").rename(place)
    beside = place.with_name(place.name + "-wal")
    beside.touch()
    monkeypatch.setenv("OPENSESSION_DATABASE_URL", f"sqlite:///{place}")
    done("backup", target)
    monkeypatch.delenv("OPENSESSION_DATABASE_URL")
    use(elsewhere / "restored", monkeypatch)
    done("restore", target)
    restored = contents(elsewhere / "restored")
    assert {"auth.json", "audit.log", "tool-output/tool_1", "opensession.db"} <= restored.keys()
    assert restored.keys().isdisjoint({place.name, beside.name} - {"audit.log"})


def test_a_directory_that_is_not_empty_is_left_alone_without_force(data: Path, target: Path) -> None:
    done("backup", target)
    put(data / "auth.json", "{}")
    (data / "audit.log").unlink()
    put(data / "tokens.json", "{}")
    put(data / "opensession.db-wal", "old")
    before = contents(data)
    assert "is not empty" in refused("restore", target)
    assert contents(data) == before
    output = done("restore", target, "--force")
    aside = next(path for path in data.glob("before-restore-2*"))
    assert aside.name in output and (aside / "auth.json").read_text() == "{}" and (aside / "tokens.json").exists()
    assert (data / "auth.json").read_text() == json.dumps(SECRET)
    assert (data / "audit.log").exists() and not (data / "tokens.json").exists()
    assert not (data / "opensession.db-wal").exists(), "beside the restored database it would destroy it"


def test_a_foreign_directory_is_refused_even_with_force(
    data: Path, target: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("backup", target)
    put(elsewhere / "letter.txt", "Dear")
    use(elsewhere, monkeypatch)
    assert "is no data directory" in refused("restore", target, "--force")
    assert contents(elsewhere) == {"letter.txt": b"Dear"}


def test_a_server_at_work_is_refused_and_so_is_nothing_to_back_up(
    data: Path, target: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(elsewhere, monkeypatch)
    assert "nothing to back up" in refused("backup", target)
    assert not elsewhere.exists() and not target.parent.exists()
    use(data, monkeypatch)
    done("backup", target)
    use(elsewhere, monkeypatch)
    locks = ServerLocks(elsewhere / "servers")
    locks.hold("one")
    assert "stop it first" in refused("restore", target)
    locks.release()
    done("restore", target)


# Damage.


def test_a_damaged_archive_restores_nothing(data: Path, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "backup.tar.gz"
    done("backup", archive)
    whole = archive.read_bytes()
    use(elsewhere, monkeypatch)
    for position in range(0, len(whole), max(1, len(whole) // 40)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        archive.write_bytes(damaged)
        code, output = run("restore", archive)
        if code == 0:  # a byte of the gzip header or of the padding: nothing that was backed up has changed
            assert json.loads((elsewhere / "auth.json").read_text()) == SECRET
            shutil.rmtree(elsewhere)
        else:
            assert "damaged" in output or "Use another" in output
            assert list(elsewhere.iterdir()) == []
    archive.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in refused("restore", archive)
    assert list(elsewhere.iterdir()) == []


LEADING_OUTSIDE = ["../evil", "/tmp/evil", "data/../../evil", "data//tmp/evil", "evil"]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        *((name, tarfile.REGTYPE, "") for name in LEADING_OUTSIDE),
        *(("data/tool-output", kind, "which no backup has") for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE)),
    ],
)
def test_an_archive_that_leads_outside_is_refused(
    name: str, kind: bytes, said: str, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, str(tmp_path)
    use(elsewhere, monkeypatch)
    assert said in refused(
        "restore", archive_of(tmp_path / "hostile.tar.gz", (member, b"evil" if kind == tarfile.REGTYPE else b""))
    )
    assert list(elsewhere.iterdir()) == [] and not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "is no backup, or is not whole"),
        (b"{}", "manifest.json cannot be read"),
        ({"format": 1}, "has format 1"),
        ({"revision": "9999"}, "use a newer opensession"),
        ({"revision": "0001x"}, "which no version of opensession has"),
        ({"database": "postgresql"}, "is of a server with postgresql"),
    ],
)
def test_a_manifest_that_this_version_cannot_work_with_is_refused(
    manifest: object, message: str, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = {"format": FORMAT, "version": "0", "created": 1, "database": "sqlite", "revision": HEAD}
    content = json.dumps({**sound, **manifest}).encode() if isinstance(manifest, dict) else manifest
    members = [] if content is None else [(tarfile.TarInfo(MANIFEST), content)]
    use(elsewhere, monkeypatch)
    assert message in refused("restore", archive_of(tmp_path / "backup.tar.gz", *members))
    assert list(elsewhere.iterdir()) == []


def test_an_older_database_is_migrated(data: Path, target: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "opensession.db").unlink()
    engine = make_engine(f"sqlite:///{data / 'opensession.db'}")
    upgrade_to(engine, "0007")
    columns = "session (id, project_id, directory, title_folded, updated, body)"
    with engine.begin() as connection:
        connection.execute(text(f"INSERT INTO {columns} VALUES ('ses_1', 'p', '/', '', 1, '{{}}')"))
    engine.dispose()
    assert "schema 0007" in done("backup", target)
    use(elsewhere, monkeypatch)
    done("restore", target)
    assert [path.name for path in elsewhere.glob("opensession.db*")] == ["opensession.db"]
    engine = make_engine(f"sqlite:///{elsewhere / 'opensession.db'}")
    with engine.connect() as connection:
        assert revision(connection) == HEAD
        assert connection.execute(text("SELECT id FROM session")).scalars().all() == ["ses_1"]
    engine.dispose()
