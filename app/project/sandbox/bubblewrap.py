"""The arguments of `bwrap` for a scope. Nothing here looks at the machine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.project.sandbox.scope import MachineFacts, Mask, SandboxScope, above_project

SUPERVISOR = """
trap : TERM
{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
ulimit -c 0
ulimit -d "$1" 2>/dev/null
ulimit -u "$2" 2>/dev/null || ulimit -p "$2" 2>/dev/null
n=$3
shift 3
{check}
while [ $n -gt 0 ]; do
  n=$((n - 1))
  eval "value=\\$OPENSESSION_INSIDE_$n"
  unset OPENSESSION_INSIDE_$n
  set -- "$value" "$@"
done
/usr/bin/env -- "$@"
code=$?
n=0
while [ $n -lt 20 ] && kill -0 -1 2>/dev/null; do n=$((n + 1)); sleep 0.01; done
exit $code
"""
"""Process 1 of the namespace, which runs the command as its child. So the limits hold inside only, a SIGTERM lets the command
end, and processes left in the background get the same 0.2 seconds for their last output as without a sandbox. The out-of-memory
killer takes these processes before the server's. The command's variables come numbered and are set here: bubblewrap, which starts
outside, would obey some of them (`LD_PRELOAD`)."""
_CHECK = """
if [ "$({stat} -Lc %d:%i -- {places} 2>&1)" != "{identities}" ]; then
  echo "opensession: another file or directory stands at one of these paths than when the work began:" {places} >&2
  exit {code}
fi
shift {count}
"""
"""A path that is named to bubblewrap may lead elsewhere by then, so what was bound is compared with what was judged."""
REPLACED = 126
"""The exit code of a command that was not begun because a path led elsewhere."""

_ROOT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""Root's capabilities: to work with files of other owners, as `tar` and `su` do. It can neither mount nor make devices."""
_FEW_DEVICES = [word for name in ("null", "urandom") for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
_Mounts = dict[Path, list[str]]


def arguments(machine: MachineFacts, scope: SandboxScope, variables: int = 0) -> list[str]:
    """The command line before the command's own words. `variables`: the number of `numbered` ones."""
    devices = ["--proc", "/proc", "--dev", "/dev"]
    for path in machine.kernel_files:
        devices += _bind("--ro-bind-try", path)
    script = SUPERVISOR.replace("{check}", _check(machine, scope))
    limits = (machine.memory_kilobytes, machine.processes, variables)
    return _arguments(machine, scope, devices, [script, "sandbox", *map(str, limits)])


def server_arguments(machine: MachineFacts, scope: SandboxScope) -> list[str]:
    """Like `arguments`, for a program of the server's own, which needs neither limits nor /proc, and no variables of others.
    Process 1 is a shell: bubblewrap's own would be an orphan when bubblewrap has ended, which a server that is process 1 of its
    container does not reap."""
    shown = {*scope.read, *scope.write}  # with what lies there, such as /etc/localtime: a link, which nothing can be bound to
    machine = replace(machine, system=tuple(path for path in machine.system if shown.isdisjoint(path.parents)))
    script = f'trap : TERM\n{_check(machine, scope)}\n"$@"\nexit $?'
    return _arguments(machine, scope, _FEW_DEVICES, [script, "sandbox"])


def _arguments(machine: MachineFacts, scope: SandboxScope, devices: Sequence[str], script: Sequence[str]) -> list[str]:
    """`script`: the shell's script and its first arguments; the paths that it checks follow."""
    closed = (word for place in (Path("/"), *above_project(machine, scope.project)) for word in ("--remount-ro", str(place)))
    within = [*_file_system(machine, scope), *devices, *closed]
    ending = ["--chdir", str(scope.directory), "--", machine.shell, "-c", *script, *(str(path) for path, _ in scope.identities)]
    return [machine.bwrap, "--as-pid-1", *_namespaces(machine, scope), *within, *ending]


def numbered(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment that brings the command's variables into the sandbox: under names that no program obeys, and not as words,
    which every user of the machine could read."""
    return {f"OPENSESSION_INSIDE_{at}": f"{name}={value}" for at, (name, value) in enumerate(variables.items())}


def _namespaces(machine: MachineFacts, scope: SandboxScope) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--die-with-parent")
    if machine.user_namespace:
        yield "--unshare-user"
    if machine.is_root:
        yield from ("--cap-drop", "ALL")
        for name in _ROOT_CAPABILITIES:
            yield from ("--cap-add", f"CAP_{name}")
    if not scope.network:
        yield "--unshare-net"


def _file_system(machine: MachineFacts, scope: SandboxScope) -> Iterator[str]:
    """From the top down, so that each mount lies on the one above it. The rest of the root is empty and read-only."""
    for link, target in machine.links:
        yield from ("--symlink", target, str(link))
    mounts = _mounts(machine, scope)
    for destination in sorted(mounts, key=lambda path: len(path.parts)):
        yield from mounts[destination]


def _mounts(machine: MachineFacts, scope: SandboxScope) -> _Mounts:
    """By destination; a later entry replaces an earlier one."""
    shown = (*machine.system, *machine.toolchains, *scope.read, *scope.write, *(name for _, name in scope.spellings))
    own = machine.own
    return {
        **{path: _bind("--bind-try", path) for path in scope.kept},
        **{path: _bind("--ro-bind-try", path) for path in machine.system},
        **{place: _own(place, scope.private and scope.private / name) for place, name in own.items()},
        **{place: ["--tmpfs", str(place)] for place in above_project(machine, scope.project)},
        **{path: _bind("--ro-bind-try", path) for path in (*machine.toolchains, *machine.git_files, *scope.read)},
        **{mask.path: _hide(mask) for mask in _masks(machine, scope) if _is_shown(mask.path, shown, own)},
        **{path: _bind("--bind-try", path) for path in scope.write},
        **{
            path: ["--bind-try" if source in scope.write else "--ro-bind-try", str(source), str(path)]
            for source, path in scope.spellings
        },
    }


def _masks(machine: MachineFacts, scope: SandboxScope) -> Iterator[Mask]:
    """Also by other names, which are mounts of their own."""
    for mask in (*machine.masks, *scope.masks):
        yield mask
        for source, name in scope.spellings:
            if mask.path.is_relative_to(source):
                yield replace(mask, path=name / mask.path.relative_to(source))


def _own(place: Path, source: Path | None) -> list[str]:
    return ["--bind", str(source), str(place)] if source else ["--tmpfs", str(place)]


def _bind(option: str, path: Path) -> list[str]:
    return [option, str(path), str(path)]


def _hide(mask: Mask) -> list[str]:
    return ["--tmpfs", str(mask.path)] if mask.is_directory else ["--ro-bind", "/dev/null", str(mask.path)]


def _is_shown(path: Path, shown: tuple[Path, ...], own: Mapping[Path, str]) -> bool:
    """Whether the nearest mount above shows the machine's files there. A path that is shown itself was asked for by name."""
    above = [place for place in path.parents if place in shown or place in own]
    return path not in shown and bool(above) and above[0] in shown


def _check(machine: MachineFacts, scope: SandboxScope) -> str:
    """The part of the script that checks the scope's places, which are its next words."""
    if not scope.identities:
        return ""
    count = len(scope.identities)
    places = " ".join(f'"${{{number}}}"' for number in range(1, count + 1))
    expected = "\n".join(f"{device}:{inode}" for _, (device, inode) in scope.identities)
    return _CHECK.format(stat=machine.stat, places=places, identities=expected, code=REPLACED, count=count)
