"""What the kernel says of processes: who lives, who is stopped, who holds a port."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TCP_LISTEN = "0A"
_STATE, _FLAGS, _USER_TICKS, _SYSTEM_TICKS, _STARTED_TICKS = (
    0,
    6,
    11,
    12,
    19,
)  # counted from the field after the name
_PF_EXITING = 0x4
_SIGKILL_BIT = 1 << (signal.SIGKILL - 1)
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def mount_namespace(pid: int) -> str:
    """Two processes with the same one see the same mounts."""
    return str((_PROC / str(pid) / "ns/mnt").readlink())


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes, and the share of them that is this process's own by right."""

    rss_bytes: int
    pss_bytes: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What a process is about."""

    state: str
    """One letter, as in proc(5); empty where there is no such process."""
    cpu_ns: int
    """Time on a CPU in its whole life."""

    @property
    def stopped(self) -> bool:
        """By a signal or a debugger: it cannot act until it is continued."""
        return self.state in {"T", "t"}

    @property
    def runnable(self) -> bool:
        """It runs, or would if it were given a CPU."""
        return self.state == "R"


def activity(pid: int) -> Activity:
    fields = _stat(pid)
    if not fields:
        return Activity("", 0)
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    return Activity(fields[_STATE], ticks * _TICK_NS)


def age_ns(pid: int) -> int:
    """How long a process has lived, to some hundredths of a second; 0 where there is none."""
    fields = _stat(pid)
    if not fields:
        return 0
    return max(
        0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - int(fields[_STARTED_TICKS]) * _TICK_NS
    )


def is_stopped(pid: int) -> bool:
    return activity(pid).stopped


def is_gone(pid: int) -> bool:
    """There is no such process, or it is dead and only waits for its parent."""
    return _is_over(_stat(pid))


def is_ending(pid: int) -> bool:
    """It is gone, or about to be: it does nothing more, though it may still hold what it had."""
    fields = _stat(pid)
    return _is_over(fields) or bool(int(fields[_FLAGS]) & _PF_EXITING) or _is_killed(pid)


def _is_killed(pid: int) -> bool:
    """A SIGKILL waits for it: it dies as soon as it gets a CPU."""
    return any(int(mask, 16) & _SIGKILL_BIT for mask in _status(pid, "SigPnd:", "ShdPnd:"))


def switches(pid: int) -> int:
    """How often its main thread has given up a CPU: it has run if this has grown. Precise where
    CPU time, which is counted in hundredths of a second, is not."""
    return sum(map(int, _status(pid, "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")))


def _status(pid: int, *names: str) -> list[str]:
    """These rows of what the kernel tells of a process; none of one that is gone."""
    try:
        text = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.split()[1] for line in text.splitlines() if line.startswith(names)]


def _is_over(fields: list[str]) -> bool:
    return not fields or fields[_STATE] in {"Z", "X"}


def _stat(pid: int) -> list[str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(") ")[2].split()


def running(module: str) -> Iterator[tuple[int, list[str]]]:
    """Processes that run this Python module and are not over, with their command lines."""
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            words, pid = _words(folder), int(folder.name)
            if module in words and not is_gone(pid):
                yield pid, words


def _words(folder: Path) -> list[str]:
    """The command line of a process; none of one that has ended."""
    try:
        content = (folder / "cmdline").read_bytes()
    except OSError:
        return []
    return content.decode("utf-8", "replace").split("\0")


def memory_of(pid: int) -> Memory:
    """Zeros where the process is gone or the kernel does not say."""
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return Memory(0, 0)
    sizes = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) * 1024
    return Memory(sizes.get("Rss", 0), sizes.get("Pss", 0))


def holder(port: int) -> str | None:
    """Who listens on a TCP port, or else whose connection has it, for people; None where the kernel
    shows us no process."""
    listens = {f"socket:[{row.inode}]": row.listens for row in _sockets() if row.port == port}
    if not listens:
        return None
    # One look at each process: a server of another user may have thousands of connections.
    folders = (folder for folder in _PROC.iterdir() if folder.name.isdecimal())
    held = ((folder, _links(folder / "fd") & listens.keys()) for folder in folders)
    found = [(any(listens[link] for link in links), folder) for folder, links in held if links]
    if not found:
        return None
    _, folder = max(found, key=lambda one: one[0])
    return f"{_name(folder)} (pid {folder.name})"


def listening_ports() -> set[int]:
    """Ports on which anybody listens, on whichever address."""
    return {row.port for row in _sockets() if row.listens}


def ephemeral_ports() -> range:
    """The kernel gives these to connections that ask for no port; empty where it does not say."""
    low, high = _numbers("ip_local_port_range", (0, -1))
    return range(low, high + 1)


def unprivileged_from() -> int:
    """The first port that every user may take."""
    return _numbers("ip_unprivileged_port_start", (1024,))[0]


def _numbers(name: str, unknown: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(map(int, (_PROC / "sys/net/ipv4" / name).read_text(encoding="ascii").split()))
    except OSError:
        return unknown


@dataclass(frozen=True, slots=True)
class _Socket:
    port: int
    listens: bool
    inode: str


def _sockets() -> list[_Socket]:
    """Of TCP, of both families; those that linger after their end belong to nobody."""
    found = []
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (_PROC / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        found += [
            _Socket(int(row[1].rpartition(":")[2], 16), row[3] == _TCP_LISTEN, row[9])
            for row in map(str.split, lines)
            if row[9] != "0"
        ]
    return found


def _links(folder: Path) -> set[str]:
    """What the descriptors of a process refer to, as far as we may know."""
    links = set()
    with contextlib.suppress(OSError):  # another user's process, or one that just ended
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):  # it was just closed
                links.add(str(entry.readlink()))
    return links


def _name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "a process"
