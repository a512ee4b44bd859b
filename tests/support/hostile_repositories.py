"""What a repository can hold that harms who only looks at it: each function makes a repository so. `RUNNING` names
programs, which are to be run; `LEADING_OUT` leads out of the repository, to another member's or to the server's files."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from exchanging import repeating
from git_files import git, put_file
from hostile_ground import Ground, make_repository

Attack = Callable[[Ground, Path], None]


def put_away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def configure(repo: Path, name: str, value: str, file: str = "config") -> None:
    git(repo, "config", "--file", str(repo / ".git" / file), name, value)


# Programs.


def _attributed(ground: Ground, repo: Path, attribute: str, settings: tuple[str, ...], file: str = "config") -> None:
    (repo / ".gitattributes").write_text(f"* {attribute}=evil\n")
    for name in settings:
        configure(repo, name, "true" if name.endswith("required") else ground.marking(repo), file)


def _filter_info_attributes(ground: Ground, repo: Path) -> None:
    put_file(repo / ".git" / "info" / "attributes", "* filter=EV.il\n")
    configure(repo, "filter.EV.il.clean", ground.marking(repo))
    configure(repo, "filter.EV.il.required", "true")


def _included(ground: Ground, repo: Path, setting: str = "include.path", name: str = "../more.cfg") -> None:
    _attributed(ground, repo, "filter", ("filter.evil.clean", "filter.evil.process"), "../more.cfg")
    configure(repo, setting, name)


def _included_in_a_line(ground: Ground, repo: Path) -> None:
    _attributed(ground, repo, "filter", ("filter.evil.clean",), "../more.cfg")
    config = repo / ".git" / "config"
    config.write_text("\ufeff[include]path=../more.cfg\n[core][include]path=../more.cfg\n" + config.read_text())


def _chained(ground: Ground, repo: Path) -> None:
    _attributed(ground, repo, "filter", ("filter.evil.clean",), "../third.cfg")
    for number, following in (("first", "second"), ("second", "third")):
        (repo / f"{number}.cfg").write_text(f"[include]\n\tpath = {following}.cfg\n")
    configure(repo, "include.path", "../first.cfg")


def _worktree_config(ground: Ground, repo: Path) -> None:
    configure(repo, "extensions.worktreeConfig", "true")
    _attributed(ground, repo, "filter", ("filter.evil.clean",), "config.worktree")
    configure(repo, "core.fsmonitor", ground.marking(repo), "config.worktree")


def _named(ground: Ground, repo: Path, name: str) -> None:
    configure(repo, name, ground.marking(repo))


def _hook(ground: Ground, repo: Path, name: str, folder: str = "hooks") -> None:
    (repo / ".git" / folder).mkdir(exist_ok=True)
    shutil.copy(ground.marking(repo), repo / ".git" / folder / name)
    if folder != "hooks":
        configure(repo, "core.hooksPath", str(repo / ".git" / folder))


def _promisor(ground: Ground, repo: Path) -> None:
    """Its objects are to be fetched by a program."""
    git(repo, "repack", "-qad")
    for pack in (repo / ".git" / "objects" / "pack").glob("*"):
        pack.unlink()
    configure(repo, "core.repositoryFormatVersion", "1")
    for name, value in {"url": f"ext::{ground.marking(repo)}", "promisor": "true", "uploadpack": ground.marking(repo)}.items():
        configure(repo, f"remote.origin.{name}", value)
    configure(repo, "extensions.partialClone", "origin")


def _submodule(ground: Ground, repo: Path, **settings: str) -> None:
    """A repository within, as the index says, whose own configuration names programs."""
    inner = make_repository(repo / "sub", "mine")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{git(inner, 'rev-parse', 'HEAD')},sub")
    git(repo, "commit", "-qm", "sub")
    git(inner, "commit", "-qam", "further")
    (inner / "f.txt").write_text("changed\n")
    _attributed(ground, inner, "filter", ("filter.evil.clean", "core.fsmonitor", "diff.external", "diff.evil.textconv"))
    shutil.copy(ground.marking(inner), ground.marking(repo))
    (repo / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n')
    for name, value in {"submodule.sub.active": "true", "submodule.sub.url": "./sub", **settings}.items():
        configure(repo, name, value)


def _nested(ground: Ground, repo: Path) -> None:
    """A repository within that no index names."""
    inner = make_repository(repo / "sub", "mine")
    _attributed(ground, inner, "filter", ("filter.evil.clean", "core.fsmonitor"))


def _bare_within(ground: Ground, repo: Path) -> None:
    """Files that a clone brings, and that make their folder a git directory."""
    git(repo, "clone", "--quiet", "--bare", ".", "sub")
    for name, value in {"bare": "false", "worktree": str(repo), "fsmonitor": ground.marking(repo)}.items():
        git(repo, "config", "--file", str(repo / "sub" / "config"), f"core.{name}", value)
    (repo / "sub" / ".gitattributes").write_text("* filter=evil\n")
    git(repo, "config", "--file", str(repo / "sub" / "config"), "filter.evil.clean", ground.marking(repo))


_PROGRAMS = (
    "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.gitProxy",
    "core.alternateRefsCommand",
    "sequence.editor", "gpg.program", "gpg.ssh.program", "credential.helper", "diff.external", "pager.diff", "pager.config",
    "pager.rev-list", "pager.diff-index", "interactive.diffFilter", "alias.diff", "alias.rev-parse", "uploadpack.packObjectsHook",
    "http.proxy", "web.browser", "core.commentChar", "gc.recentObjectsHook", "trailer.x.command", "log.showSignature",
)  # fmt: skip
_HOOKS = ("post-index-change", "post-checkout", "reference-transaction", "pre-auto-gc", "fsmonitor-watchman", "pre-commit")
_IGNORE_NONE = {"diff.ignoreSubmodules": "none", "submodule.sub.ignore": "none", "status.submoduleSummary": "true"}
_FILTERS = ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process")

RUNNING: dict[str, Attack] = {
    **{f"names {name}": partial(_named, name=name) for name in _PROGRAMS},
    **{f"hook {name}": partial(_hook, name=name) for name in _HOOKS},
    **{f"hooksPath {name}": partial(_hook, name=name, folder="other") for name in _HOOKS},
    **{name: partial(_attributed, attribute="filter", settings=(name, "filter.evil.required")) for name in _FILTERS},
    "all filters": partial(_attributed, attribute="filter", settings=_FILTERS),
    "filter of info/attributes": _filter_info_attributes,
    "textconv": partial(_attributed, attribute="diff", settings=("diff.evil.textconv",)),
    "external diff": partial(_attributed, attribute="diff", settings=("diff.evil.command",)),
    "merge driver": partial(_attributed, attribute="merge", settings=("merge.evil.driver",)),
    "included filter": _included,
    "included filter, by gitdir": partial(_included, setting="includeIf.gitdir:**.path"),
    "included filter, by branch": partial(_included, setting="includeIf.onbranch:main.path"),
    "included filter, by remote": partial(_included, setting="includeIf.hasconfig:remote.*.url:**.path"),
    "included in a line": _included_in_a_line,
    "included in a chain": _chained,
    "config.worktree": _worktree_config,
    "promisor": _promisor,
    "submodule": _submodule,
    "submodule, diff.submodule=diff": partial(_submodule, **{"diff.submodule": "diff"}),
    "submodule, diff.submodule=log": partial(_submodule, **{"diff.submodule": "log"}),
    "submodule, ignore none": partial(_submodule, **_IGNORE_NONE),
    "nested": _nested,
    "bare within": _bare_within,
}


# Ways out.


def _gitfile(ground: Ground, repo: Path, target: str) -> None:
    shutil.rmtree(repo / ".git")
    (repo / ".git").write_text(f"gitdir: {target if target.startswith('..') else _place(ground, target)}\n")


def _gitfile_chain(ground: Ground, repo: Path) -> None:
    """Over a directory of anna's own whose parts are links."""
    link = repo.parent / f"{repo.name}.link"
    link.symlink_to(ground.bert / ".git")
    _gitfile(ground, repo, str(link))


def _linked(ground: Ground, repo: Path, name: str, target: str) -> None:
    """A part of the git directory is a link."""
    path = repo / ".git" / name
    put_away(path)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(_place(ground, target))


def _written(ground: Ground, repo: Path, name: str, text: str) -> None:
    path = repo / ".git" / name
    put_file(path, text.format(bert=ground.bert, data=ground.base / "data" / "kept", victim=ground.victim))


def _alternates(ground: Ground, repo: Path, *, via: str = "") -> None:
    """With references to what is there."""
    line = f"{ground.bert}/.git/objects\n"
    if via:
        _written(ground, repo, "other/info/alternates", line)
        line = f"{repo}/.git/other\n"
    _written(ground, repo, "objects/info/alternates", line)
    head = git(ground.bert, "rev-parse", "HEAD")
    (repo / ".git" / "refs" / "heads" / "main").write_text(f"{head}\n")


def _common(ground: Ground, repo: Path, named: str) -> None:
    _written(ground, repo, "commondir", named)
    shutil.rmtree(repo / ".git" / "objects")
    shutil.rmtree(repo / ".git" / "refs")


def _made_worktree(ground: Ground, repo: Path) -> None:
    """A folder that looks like a worktree's, of another member's repository."""
    folder = repo.parent / f"{repo.name}-git" / "worktrees" / "x"
    put_file(folder / "HEAD", "ref: refs/heads/main\n")
    (folder / "commondir").write_text(f"{ground.bert}/.git\n")
    (folder / "gitdir").write_text(f"{repo}/.git\n")
    _gitfile(ground, repo, str(folder))


def _setting(ground: Ground, repo: Path, name: str, target: str, file: str = "config") -> None:
    if file == "config.worktree":
        configure(repo, "extensions.worktreeConfig", "true")
    configure(repo, name, str(_place(ground, target)), file)


def _worktree_by_include(ground: Ground, repo: Path) -> None:
    (repo / "more.cfg").write_text(f"[core]\n\tworktree = {ground.bert}\n")
    configure(repo, "include.path", "../more.cfg")


def _gitlink_elsewhere(ground: Ground, repo: Path) -> None:
    put_file(repo / "sub" / ".git", f"gitdir: {ground.bert}/.git\n")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{git(repo, 'rev-parse', 'HEAD')},sub")


def _linked_checkout_file(ground: Ground, repo: Path, name: str) -> None:
    (repo / name).unlink(missing_ok=True)
    (repo / name).symlink_to(ground.bert / "f.txt")


_TARGETS = {
    "bert": "roots/bert/.git",
    "bert's worktree": "roots/bert/.git/worktrees/linked",
    "bert's bare": "roots/bert/bare.git",
    "data": "data/kept/.git",
    "bert's gitfile": "roots/bert/linked/.git",
}


def _place(ground: Ground, target: str) -> Path:
    return ground.base / _TARGETS.get(target, target)


_LINKS = (
    "HEAD", "refs", "refs/heads", "refs/heads/main", "objects", "objects/info", "objects/pack", "index", "config", "logs", "info",
    "worktrees", "packed-refs",
)  # fmt: skip
_FILE_SETTINGS = (
    "core.excludesFile",
    "core.attributesFile",
    "diff.orderFile",
    "include.path",
    "mailmap.file",
    "blame.ignoreRevsFile",
)


def _leading_out() -> Iterator[tuple[str, Attack]]:
    for target in _TARGETS:
        yield f"gitfile to {target}", partial(_gitfile, target=target)
        yield f".git is a link to {target}", partial(_linked, name="", target=target)
    for name in _LINKS:
        yield f"{name} is a link to bert's", partial(_linked, name=name, target=f"roots/bert/.git/{name}")
        yield f"{name} is a link to the data directory's", partial(_linked, name=name, target=f"data/kept/.git/{name}")
    for name in _FILE_SETTINGS:
        yield f"{name} is bert's file", partial(_setting, name=name, target="roots/bert/f.txt")
        yield f"{name} is bert's configuration", partial(_setting, name=name, target="roots/bert/.git/config")
    for target in ("roots/bert", "data/kept", "home", "victim", "roots", ""):
        yield f"core.worktree is {target}", partial(_setting, name="core.worktree", target=target)
        yield f"config.worktree's is {target}", partial(_setting, name="core.worktree", target=target, file="config.worktree")
    for name in (".gitignore", ".gitattributes", ".gitmodules", "f.txt", "unknown.txt"):
        yield f"{name} is a link", partial(_linked_checkout_file, name=name)


LEADING_OUT: dict[str, Attack] = {
    **dict(_leading_out()),
    "relative gitfile": partial(_gitfile, target="../../bert/.git"),
    "gitfile to a link": _gitfile_chain,
    "alternates": _alternates,
    "alternates in a chain": partial(_alternates, via="other"),
    "commondir": partial(_common, named="{bert}/.git\n"),
    "relative commondir": partial(_common, named="../../../bert/.git\n"),
    "commondir of the data directory": partial(_common, named="{data}/.git\n"),
    "a worktree that was made by hand": _made_worktree,
    "core.worktree by an include": _worktree_by_include,
    "a submodule's gitfile": _gitlink_elsewhere,
}


@contextmanager
def flipping(path: Path, *states: Path) -> Iterator[None]:
    """Copies of the states, files or links, are at the path in turn."""
    aside = path.with_name(f"{path.name}.next")

    def flip() -> None:
        for state in states:
            shutil.copy2(state, aside, follow_symlinks=False)
            os.rename(aside, path)

    with repeating(flip):
        yield
