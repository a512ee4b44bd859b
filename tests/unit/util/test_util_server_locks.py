import subprocess
import sys
from pathlib import Path

from running_server import ROOT

from app.util.data_files import ServerLocks

HOLDS = """
import sys, time
from pathlib import Path
from app.util.data_files import ServerLocks
ServerLocks(Path(sys.argv[1])).hold("other")
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_is_seen_by_others_until_it_is_released(tmp_path: Path) -> None:
    own, others = ServerLocks(tmp_path / "servers"), ServerLocks(tmp_path / "servers")
    assert others.is_held("mine") is None
    own.hold("mine")
    assert others.is_held("mine") is True and own.is_held("mine") is True
    own.release()
    assert others.is_held("mine") is None and list((tmp_path / "servers").iterdir()) == []


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    locks = ServerLocks(tmp_path)
    assert locks.is_held("other") is True
    process.kill()
    process.wait()
    process.stdout.close()
    assert locks.is_held("other") is False


def test_files_of_dead_servers_are_removed_and_no_others(tmp_path: Path) -> None:
    living, locks = ServerLocks(tmp_path), ServerLocks(tmp_path)
    living.hold("living")
    (tmp_path / "dead.lock").touch()
    locks.remove_unlocked()
    assert [path.name for path in tmp_path.iterdir()] == ["living.lock"]
    living.release()
