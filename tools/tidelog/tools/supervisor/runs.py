"""The runs of this user's clusters: what each has written down of itself, and whether it lives.

```
BASE/tidelog-RUN/            sockets; BASE is $XDG_RUNTIME_DIR, $TMPDIR or /tmp
BASE/tidelog-RUN/run.json    the run, as in DATA/run.json
/dev/shm/tidelog-RUN-life    the same, as it was at the start; found whatever the environment says
/dev/shm/tidelog-RUN-*       the run's shared memory
TMPDIR/tidelog-RUN-data      the data of an ephemeral cluster
```
Each process of a run holds a lock on the folder of sockets and on the file in shared memory. What
other users have put there under such names is ignored.
"""

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import msgspec
from msgspec import Struct

from tidelog.kernel.launch import MEMORY_FOLDER, board_name
from tidelog.node.runtime import lives
from tidelog.node.runtime.lives import Life, Verdict

FILE = "run.json"
_NAME = re.compile(r"tidelog-([0-9a-f]{8})(-.*)?")
_RECORD_BYTES_MAX = 64 * 1024
_USER_FOLDERS = Path("/run/user")


class Run(Struct, frozen=True):
    """What a run says of itself."""

    run_id: str
    pid: int
    """The supervisor's."""
    cluster: str
    runtime_dir: str
    data_dir: str
    bootstrap: str
    folder: tuple[int, int] = (0, 0)
    """Which folder the data is in: what a copy of the folder says is about the original."""
    life: Life | None = None
    """The supervisor's."""
    origin: tuple[int, int] | None = None
    """Of an ephemeral cluster: the folder in which it was started, and where its name counts."""

    @property
    def is_of_earlier_version(self) -> bool:
        """Written by a version that said neither of its folder which it is, nor when it began."""
        return self.life is None and self.folder == (0, 0)

    def verdict(self) -> Verdict:
        """What is known of its supervisor, where nobody has the lock of its folder."""
        if self.life is not None:
            return self.life.verdict()
        # An earlier version's had nothing else to show that it lives: only a number, and that lock.
        return Verdict.UNKNOWN if lives.started(self.pid) else Verdict.DEAD

    @property
    def where(self) -> str:
        """Its folder and its supervisor, for people."""
        is_ours = self.life is not None and self.life.is_counted_here()
        return f"{self.data_dir} ({f'pid {self.pid}' if is_ours else 'in another container'})"


class State(Enum):
    """What a run is doing, as far as that can be told."""

    RUNNING = "running"
    ENDING = "ending"
    """The supervisor is dead, and not all of its processes are."""
    UNKNOWN = "unknown"
    """It may run in another container."""
    DEAD = "dead"


class Traces(Struct):
    """All that is there of one run."""

    run_id: str
    folders: list[Path] = []
    memory: bool = False
    data: Path | None = None
    said: list[Run] = []
    """At each place where it has said something; the newest first."""

    def state(self) -> State:
        verdicts = {
            Verdict.UNKNOWN if one.life is None else one.life.verdict() for one in self.said
        }
        if Verdict.LIVES in verdicts:
            return State.RUNNING
        if self._is_held() or self._has_children():
            return State.RUNNING if Verdict.UNKNOWN in verdicts else State.ENDING
        return State.DEAD if verdicts == {Verdict.DEAD} else State.UNKNOWN

    def _is_held(self) -> bool:
        places = [str(folder) for folder in self.folders]
        places += [str(self.data)] if self.data is not None else []
        places += [f"{MEMORY_FOLDER}{life_name(self.run_id)}"] if self.memory else []
        return any(map(lives.is_held, places)) or _board_is_held(self.run_id)

    def _has_children(self) -> bool:
        """Whether a process that has a place on the board lives."""
        supervisor = next((one.life for one in self.said if one.life is not None), None)
        if supervisor is None:
            return False
        # Shared memory takes long to import, and only runs whose supervisor is gone need it.
        from tidelog.tools.supervisor.board_pids import any_lives  # noqa: PLC0415

        return any_lives(self.run_id, supervisor)


def say(run: Run) -> None:
    """Where others of this user find the run, whatever folder they are in."""
    folder = Path(run.runtime_dir)
    if folder.name != f"tidelog-{run.run_id}" or not _is_own(folder, folder=True):
        return  # somebody has removed it
    new = folder / f"{FILE}.new"
    new.write_bytes(document(run))
    new.replace(folder / FILE)


def document(run: Run) -> bytes:
    return json.dumps(msgspec.to_builtins(run)).encode() + b"\n"


def life_name(run_id: str) -> str:
    """The shared memory in which a run says who it is."""
    return f"/tidelog-{run_id}-life"


def temporary_folder() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 -- names in it are our own


def runtime_bases() -> Iterator[Path]:
    """Where folders of sockets may be, the best place first."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir() and Path(given).stat().st_uid == os.geteuid():
        yield Path(given)
    yield temporary_folder()
    yield Path("/tmp")  # noqa: S108 -- the last resort of a user with a long TMPDIR


def bases_looked_in() -> set[Path]:
    """Also where this user's other shells may have put one."""
    return {*runtime_bases(), _USER_FOLDERS / str(os.geteuid())}


def traces() -> dict[str, Traces]:
    """By run: all that any run of this user has left, or has now."""
    found: dict[str, Traces] = {}
    for base in sorted(bases_looked_in()):
        for name, run_id, rest in _names_in(base):
            if rest in {"", "-data"} and _is_own(base / name, folder=True):
                one = found.setdefault(run_id, Traces(run_id))
                _take_folder(one, base / name, rest)
    for name, run_id, _ in _names_in(Path(MEMORY_FOLDER)):
        if _is_own(Path(MEMORY_FOLDER) / name, folder=False):
            found.setdefault(run_id, Traces(run_id)).memory = True
    for one in found.values():
        _take_memory(one)
        _take_data(one)
    return found


def of_run(run_id: str) -> Traces:
    return traces().get(run_id) or Traces(run_id)


def living() -> list[tuple[Run, State]]:
    """The runs that live, or may live, and what each said last."""
    found = [(one.said[0], one.state()) for one in traces().values() if one.said]
    return sorted(
        (pair for pair in found if pair[1] is not State.DEAD),
        key=lambda pair: (pair[0].cluster, pair[0].data_dir),
    )


def _names_in(folder: Path) -> list[tuple[str, str, str]]:
    """Each name of ours with its run, and what follows."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 -- of thousands most are others'
    except OSError:
        return []
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    return [(match[0], match[1], match[2] or "") for match in matches]


def _is_own(path: Path, *, folder: bool) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    is_kind = stat.S_ISDIR(status.st_mode) if folder else stat.S_ISREG(status.st_mode)
    return is_kind and status.st_uid == os.geteuid()


def _take_folder(one: Traces, path: Path, rest: str) -> None:
    if rest:
        one.data = path
    else:
        one.folders = [*one.folders, path]
    run = read(path / FILE)
    if run is not None and run.run_id == one.run_id:
        one.said = [run, *one.said] if not rest else [*one.said, run]


def _take_memory(one: Traces) -> None:
    path = Path(f"{MEMORY_FOLDER}{life_name(one.run_id)}")
    run = read(path) if _is_own(path, folder=False) else None
    if run is None or run.run_id != one.run_id:
        return
    place = Path(run.runtime_dir)
    is_new = place.name == f"tidelog-{one.run_id}" and place not in one.folders
    if is_new and _is_own(place, folder=True):
        _take_folder(one, place, "")
    one.said = [*one.said, run]


def _take_data(one: Traces) -> None:
    """Of an ephemeral cluster that was started with another TMPDIR."""
    for run in one.said:
        data = Path(run.data_dir)
        is_its = run.origin is not None and data.name == f"tidelog-{one.run_id}-data"
        if one.data is None and is_its and _is_own(data, folder=True):
            one.data = data


def read(path: Path) -> Run | None:
    """None unless all of it is there and of the right kind."""
    try:
        with path.open("rb") as file:
            return msgspec.convert(json.loads(file.read(_RECORD_BYTES_MAX)), Run)
    except (OSError, ValueError, RecursionError):
        return None


def _board_is_held(run_id: str) -> bool:
    try:
        descriptor = os.open(
            MEMORY_FOLDER + board_name(run_id), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        )
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
