"""The branch that others start from: what the remote calls its own, else what such a branch is usually called."""

from pathlib import Path

from app.util.dataclass import dataclass
from app.util.git import git

_REMOTES = ("origin", "upstream")
_USUAL = ("main", "master")


@dataclass(frozen=True)
class DefaultBranch:
    """`ref` is where its commit is: the remote's branch if a remote names it, else the local one."""

    name: str
    ref: str


async def default_branch(checkout: Path) -> DefaultBranch | None:
    """None if no remote names one and there is none of the usual names, as before the first commit."""
    return await _of_remote(checkout) or await _of_usual_name(checkout)


async def _of_remote(checkout: Path) -> DefaultBranch | None:
    heads = {remote: f"refs/remotes/{remote}/HEAD" for remote in _REMOTES}
    listed = (await git(["for-each-ref", "--format=%(refname) %(symref)", *heads.values()], checkout)).text
    targets = dict(line.partition(" ")[::2] for line in listed.splitlines())
    for remote, head in heads.items():
        prefix = f"refs/remotes/{remote}/"
        if targets.get(head, "").startswith(prefix):
            return DefaultBranch(targets[head].removeprefix(prefix), targets[head])
    return None


async def _of_usual_name(checkout: Path) -> DefaultBranch | None:
    configured = (await git(["config", "--get", "init.defaultBranch"], checkout)).text
    names = [name for name in (configured, *_USUAL) if name]
    refs = {name: f"refs/heads/{name}" for name in names}
    present = (await git(["for-each-ref", "--format=%(refname)", *refs.values()], checkout)).text.splitlines()
    return next((DefaultBranch(name, ref) for name, ref in refs.items() if ref in present), None)
