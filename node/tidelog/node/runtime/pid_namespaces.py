"""Whether a container's pid namespace is gone, and every process that was in it. (shell)"""

import re
from pathlib import Path

_PROC = Path("/proc")
_NAME = re.compile(r"pid:\[(\d+)\]")
_INITIAL = "pid:[4026531836]"
"""The kernel gives the first namespace this number after each start of the machine."""
_FIRST_OF_OTHERS = 0xF000_0000


def is_gone(name: str, proc: Path = _PROC) -> bool:
    """`name` is what `/proc/PID/ns/pid` refers to. True only if it is shown: this process sees all
    processes of the machine, and none of them is in that namespace.

    A namespace without a process never gets one again. Its number may be given to a new one: then
    this says False, though the old one is gone.
    """
    found = _NAME.fullmatch(name)
    if found is None or int(found[1]) < _FIRST_OF_OTHERS or not _sees_all(proc):
        return False
    pids = [entry for entry in proc.iterdir() if entry.name.isdecimal()]
    return not any(_may_be_in(name, process) for process in pids)


def _sees_all(proc: Path) -> bool:
    """Only the initial namespace contains all others. A user who may not see the processes of
    others (`hidepid`) does not see the first one either."""
    try:
        is_initial = str((proc / "self/ns/pid").readlink()) == _INITIAL
    except OSError:
        return False
    try:
        return is_initial and _numbers(proc / "1") == ["1"]
    except OSError:
        return False


def _may_be_in(name: str, process: Path) -> bool:
    try:
        return str((process / "ns/pid").readlink()) == name
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended meanwhile
    except OSError:
        pass  # it belongs to another user
    try:
        return len(_numbers(process)) != 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def _numbers(process: Path) -> list[str]:
    """Its number in each namespace from this one down to its own; empty if that is not told."""
    try:
        text = (process / "status").read_text(encoding="utf-8", errors="replace")
    except PermissionError:
        return []
    line = next((line for line in text.splitlines() if line.startswith("NSpid:")), "")
    return line.split()[1:]
