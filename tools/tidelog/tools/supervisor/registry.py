"""Which folders of clusters this user has used: how a stopped one is found again.

```
BASE/tidelog-user-UID/DEVICE-INODE.json    one for each data folder; BASE as for folders of sockets
```
It is a help for people and nothing depends on it: a machine that is restarted may forget it, and
an entry whose folder is gone is dropped. A running cluster is found by what its run has written
down itself. Only a folder that belongs to this user, and is closed to others, is read or written.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tidelog.node.runtime.lives import identity
from tidelog.tools.supervisor import runs
from tidelog.tools.supervisor.runs import Run

ENTRIES_MAX = 100
"""Then the oldest is forgotten."""
_TOLD_FOR_S = 24 * 3600.0
"""As long it is said why a cluster ended whose folder is gone."""
_ENTRY_BYTES_MAX = 16 * 1024


class Known(Struct, frozen=True):
    """One data folder."""

    cluster: str
    data_dir: str
    folder: tuple[int, int]
    ended: str = ""
    """Why its last run ended, if the folder was lost meanwhile."""

    @property
    def file(self) -> str:
        return f"{self.folder[0]:x}-{self.folder[1]:x}.json"

    @property
    def is_there(self) -> bool:
        return (
            identity(self.data_dir) == self.folder and Path(self.data_dir, "cluster.json").is_file()
        )


def note(run: Run, *, ended: str = "") -> None:
    """That a run has this folder, or has lost it. A registry that cannot be written is none."""
    if run.origin is not None and not ended:
        return  # an ephemeral cluster leaves nothing to be found again
    known = Known(run.cluster, run.data_dir, run.folder, ended)
    try:
        place = _made()
        if place is None:
            return
        if not ended:
            _forget_reason(run.data_dir)
        new = place / f".{known.file}.{os.getpid()}"
        # The names of folders are bytes, and not all of them are text: this escapes what is not.
        new.write_text(json.dumps(msgspec.to_builtins(known)), encoding="ascii")
        new.replace(place / known.file)
        _forget_oldest(place)
    except OSError:
        return


def forget(data: Path) -> None:
    for path, known in _entries():
        if known.data_dir == str(data):
            path.unlink(missing_ok=True)


def stopped() -> list[Known]:
    """The folders that are there, in order; whether a cluster runs in one, its lock says."""
    found = {}
    for path, known in _entries():
        if known.is_there:
            found[known.folder] = known
        elif not known.ended:
            path.unlink(missing_ok=True)
    return sorted(found.values(), key=lambda known: (known.cluster, known.data_dir))


def why_ended(data: Path) -> str:
    """What is known of a cluster that was there and has lost its folder; empty: nothing."""
    now = time.time()
    told = [
        (path.stat().st_mtime, known.ended)
        for path, known in _entries()
        if known.ended and known.data_dir == str(data)
    ]
    at, ended = max(told, default=(0.0, ""))
    return ended if now - at < _TOLD_FOR_S else ""


def _forget_reason(data_dir: str) -> None:
    for path, known in _entries():
        if known.ended and known.data_dir == data_dir:
            path.unlink(missing_ok=True)


def _forget_oldest(place: Path) -> None:
    files = sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime)
    for path in files[: max(0, len(files) - ENTRIES_MAX)]:
        path.unlink(missing_ok=True)


def _entries() -> Iterator[tuple[Path, Known]]:
    for base in sorted(runs.bases_looked_in()):
        place = base / _name()
        if not _is_ours(place):
            continue
        for path in sorted(place.glob("*.json"))[: 2 * ENTRIES_MAX]:
            known = _read(path)
            if known is not None:
                yield path, known


def _read(path: Path) -> Known | None:
    try:
        with path.open("rb") as file:
            known = msgspec.convert(json.loads(file.read(_ENTRY_BYTES_MAX)), Known)
    except (OSError, ValueError, RecursionError):
        return None
    return known if Path(known.data_dir).is_absolute() else None


def _made() -> Path | None:
    place = next(runs.runtime_bases()) / _name()
    place.mkdir(mode=0o700, exist_ok=True)
    return place if _is_ours(place) else None


def _name() -> str:
    return f"tidelog-user-{os.geteuid()}"


def _is_ours(place: Path) -> bool:
    try:
        status = place.lstat()
    except OSError:
        return False
    closed = not status.st_mode & 0o077
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and closed
