"""What a revert makes of the files, as the second API tells it. Pure."""

import re

from app.schema.session import Revert, RevertedFile, RevertState

_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
_NAMES = re.compile(r'^(?:---|\+\+\+|rename to|Binary files .* and) "?(?:[ab]/)?(.+?)"?(?: differ)?$', re.MULTILINE)


def revert_state(revert: Revert) -> RevertState:
    diff = revert.diff or ""
    return RevertState(
        message_id=revert.message_id,
        part_id=revert.part_id,
        snapshot=revert.snapshot,
        diff=diff,
        files=[_file(patch) for patch in _FILE.split(diff) if patch.startswith("diff --git ")],
    )


def _file(patch: str) -> RevertedFile:
    head, _, body = patch.partition("\n@@ ")
    lines = body.splitlines()[1:]
    names = [name for name in _NAMES.findall(head) if name != "/dev/null"]
    return RevertedFile(
        path=names[-1] if names else head.splitlines()[0].rpartition(" b/")[2],
        status="added" if "\nnew file mode" in head else "deleted" if "\ndeleted file mode" in head else "modified",
        additions=sum(line.startswith("+") for line in lines),
        deletions=sum(line.startswith("-") for line in lines),
        patch=patch if patch.endswith("\n") else f"{patch}\n",
    )
