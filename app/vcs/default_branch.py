"""The branch that others start from: what the remote calls its own, else what such a branch is usually called."""

from dataclasses import dataclass

from app.sandbox.git import Git

_REMOTES = ("origin", "upstream")
_USUAL = ("main", "master")


@dataclass(frozen=True)
class DefaultBranch:
    """`ref` is where its commit is: the remote's branch if a remote names it, else the local one."""

    name: str
    ref: str


async def default_branch(git: Git) -> DefaultBranch | None:
    """None if no remote names one and there is none of the usual names, as before the first commit."""
    return await _of_remote(git) or await _of_usual_name(git)


async def _of_remote(git: Git) -> DefaultBranch | None:
    heads = {remote: f"refs/remotes/{remote}/HEAD" for remote in _REMOTES}
    listed = (await git.run("for-each-ref", "--format=%(refname) %(symref)", *heads.values())).text
    targets = dict(line.partition(" ")[::2] for line in listed.splitlines())
    for remote, head in heads.items():
        prefix = f"refs/remotes/{remote}/"
        if targets.get(head, "").startswith(prefix):
            return DefaultBranch(targets[head].removeprefix(prefix), targets[head])
    return None


async def _of_usual_name(git: Git) -> DefaultBranch | None:
    configured = (await git.run("config", "--get", "init.defaultBranch")).text
    names = [name for name in (configured, *_USUAL) if name]
    refs = {name: f"refs/heads/{name}" for name in names}
    present = (await git.run("for-each-ref", "--format=%(refname)", *refs.values())).text.splitlines()
    return next((DefaultBranch(name, ref) for name, ref in refs.items() if ref in present), None)
