"""A cluster's data folder: whose it is, what it holds, which run has it now.

```
DATA/cluster.json   what the cluster is; replaced whole, never changed in place
DATA/run.json       the run that has the folder now; absent when none has. In a copy of the folder
                    it is about the original, and counts for nothing
DATA/lock           byte 0: the supervisor's; after it a byte for each of its children, by pid
```
The kernel drops a dead process's locks, so they say who lives, and no file has to be believed.
Each has a byte of its own: the kernel names one holder for a byte, and that may be a dead one.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from msgspec import Struct, field, structs, to_builtins

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.ids import Uuid, uuid_text
from tidelog.node.runtime.lives import identity, identity_of
from tidelog.tools.supervisor import proc, runs
from tidelog.tools.supervisor.runs import Run, State

FORMAT = 1
CLUSTERS = ".tidelog"
"""The folder of clusters that are known by their names in the folder above it."""
INCARNATIONS_RESERVED = 1_000
"""Numbers set aside by one write, so that no start of a process waits for the disk."""
_OLD_CHILDREN_END_WITHIN_S = 10.0
_DEAD_HOLD_FOR_S = 10.0
_SUPERVISORS, _CHILDREN = range(1), range(1, 2**62)
"""The bytes of the lock file."""
_FLOCK = struct.Struct("@hhqqi4x")
_OUR_FILES_BEFORE_THE_FIRST = frozenset({"lock", "cluster.json.new", "logs"})


class Cluster(Struct):
    """What cluster.json says."""

    cluster_id: str
    ports: list[int] = field(default_factory=list)
    """One for each broker that ever was, by its id; 0 where it was removed."""
    base_port: int = 0
    disk_generation: int = 0
    incarnations_reserved: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    """As the last start gave them; each start reads its sources anew."""
    broker_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    power_losses: dict[str, int] = field(default_factory=dict)
    """How many each process had so far; `power.py` makes disk generations of them."""
    disk_bytes: int = 0
    """Of the disk that each broker, and the coordinator, has of its own; 0: they have none."""
    format: int = FORMAT

    @property
    def brokers(self) -> list[int]:
        """The ids of those there are."""
        return [broker for broker, port in enumerate(self.ports) if port]


class DataFolder:
    """A claimed data folder: this process has its lock until it ends."""

    def __init__(self, path: Path, lock: int, *, name: str) -> None:
        self.path = path
        self.cluster = Cluster(cluster_id="")
        self._lock = lock
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = name

    @classmethod
    def claim(cls, path: Path, name: str) -> Self:
        """Make it where it is missing; CannotStartError where it is in use or not ours."""
        with sentences(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            stranger = _is_strange(path)
            if stranger:
                raise CannotStartError(stranger)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        folder = cls(path, lock, name=name)
        holder = _living_holder(lock, _SUPERVISORS)
        if holder is not None:
            os.close(lock)
            raise CannotStartError(already_running(name, holder))
        with sentences(path):
            folder._wait_for_old_children()
            folder.cluster = read_cluster(path)
            (path / "logs").mkdir(mode=0o700, exist_ok=True)
        _make_private(path)
        return folder

    def _wait_for_old_children(self) -> None:
        """Those of a supervisor that was killed are ending by themselves."""
        deadline = time.monotonic() + _OLD_CHILDREN_END_WITHIN_S
        while not _try_lock(self._lock, _CHILDREN):
            holder = next(_holders(self._lock, _CHILDREN), None)
            if holder is not None and time.monotonic() > deadline:
                kill = f"kill it (kill -9 {holder})" if holder else "end it there"
                raise CannotStartError(
                    f"a process ({holder_named(holder)}) of an earlier run of cluster "
                    f"{self._name!r} does not end: {kill}, or choose another folder with --data"
                )
            time.sleep(0.01)
        fcntl.lockf(self._lock, fcntl.LOCK_UN, len(_CHILDREN), _CHILDREN.start)

    @property
    def identity(self) -> tuple[int, int]:
        return identity(self._folder)

    def lost(self) -> str | None:
        """What has become of the folder, or of the lock in it; None while both are where they were.
        Whatever uses paths would work in another folder from now on, or in none."""
        try:
            is_there = identity_of(self.path.stat()) == self.identity
            if is_there and identity_of((self.path / "lock").stat()) == identity(self._lock):
                return None
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}:
                return None  # nothing is shown by that
            is_there = identity(self.path) == self.identity
        if is_there:
            return f"the lock in its data folder {self.path} was deleted"
        now = self.place()
        if now is not None:
            return f"its data folder {self.path} was moved to {now}"
        word = "unmounted or replaced" if self.path.exists() else "deleted"
        return f"its data folder {self.path} was {word}"

    def place(self) -> Path | None:
        """Where the folder is by now; None where no path leads to it any more."""
        for path in (self.path, self._itself.readlink()):
            if identity(path) == self.identity:
                return path
        return None

    @property
    def _itself(self) -> Path:
        """This folder wherever it is by now, never another one that took its place."""
        return Path(f"/proc/self/fd/{self._folder}")

    def save_cluster(self) -> None:
        with sentences(self.path):
            replace_file(self._itself, "cluster.json", structs.asdict(self.cluster), durable=True)

    def save_run(self, run: Run) -> None:
        with sentences(self.path):
            replace_file(self._itself, runs.FILE, to_builtins(run), durable=False)
            runs.say(run)

    def forget_run(self) -> None:
        forget_run(self._itself)

    def let_go(self) -> None:
        """In a child: the descriptors only, the lock is the parent's."""
        os.close(self._lock)
        os.close(self._folder)


def hold_as_child(path: Path) -> None:
    """Until this process ends, no new run gets the folder. The descriptor stays open on purpose."""
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    fcntl.lockf(descriptor, fcntl.LOCK_SH, 1, _CHILDREN[os.getpid()])


def run_in(path: Path) -> Run | None:
    """What run.json says of a run in this folder; None in a copy of a run's folder.

    An earlier version wrote down the path of the folder and no more.
    """
    run = runs.read(path / runs.FILE)
    here = identity(path)
    if run is not None and run.is_of_earlier_version and identity(run.data_dir) == here:
        return structs.replace(run, folder=here)
    return run if run is not None and run.folder == here else None


def forget_run(path: Path) -> None:
    (path / "run.json").unlink(missing_ok=True)


def find(data: Path) -> Path:
    """The folder of a cluster that may be ephemeral: a live one wins over what lies there."""
    if is_held(data) or data.parent.name != CLUSTERS:
        return data
    origin = origin_of(data)
    for run, state in runs.living():
        if (run.origin, run.cluster) == (origin, data.name) and state is not State.UNKNOWN:
            return Path(run.data_dir)
    return data


def origin_of(data: Path) -> tuple[int, int]:
    """The folder in which the names of clusters count whose data is in `.tidelog` under it."""
    return identity(data.parent.parent)


def is_held(path: Path) -> bool:
    """Whether a supervisor has the folder. Not for a process that has it itself."""
    return supervisor_in(path) is not None


def supervisor_in(path: Path) -> int | None:
    """The pid of the supervisor that has the folder. Not for a process that has it itself."""
    return _holder_in(path, _SUPERVISORS)


def child_in(path: Path) -> int | None:
    """The pid of one of the processes that a supervisor, alive or dead, has given the folder."""
    return _holder_in(path, _CHILDREN)


@contextlib.contextmanager
def held_for_a_moment(path: Path) -> Iterator[bool]:
    """Whether nobody has the folder, and so nobody gets it meanwhile. Not for a process that has it
    itself."""
    try:
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        both = (_SUPERVISORS, _CHILDREN)
        yield all(_living_holder(descriptor, those) is None for those in both)
    finally:
        os.close(descriptor)


def _holder_in(path: Path, those: range) -> int | None:
    try:
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _first_living(_holders(descriptor, those))
    finally:
        os.close(descriptor)


def _living_holder(descriptor: int, those: range) -> int | None:
    """Who has the bytes; None where this process has them now. Who was killed holds its locks a
    moment longer than it can do anything, and a last thread may hold them when all else is gone."""
    deadline = time.monotonic() + _DEAD_HOLD_FOR_S
    while not _try_lock(descriptor, those):
        holders = list(_holders(descriptor, those))
        living = _first_living(holders)
        if living is not None or (holders and time.monotonic() > deadline):
            return holders[0] if living is None else living
        time.sleep(0.01)
    return None


def _first_living(holders: Iterable[int]) -> int | None:
    """Of who lives in another container, the kernel tells the number 0."""
    return next((pid for pid in holders if not pid or not proc.is_ending(pid)), None)


def _try_lock(descriptor: int, those: range) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, len(those), those.start)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EAGAIN}:
            raise
        return False
    return True


def _holders(descriptor: int, those: range) -> Iterator[int]:
    while those:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, those.start, len(those), 0)
        told = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
        kind, _, start, length, pid = _FLOCK.unpack(told)
        if kind == fcntl.F_UNLCK:
            return
        yield pid
        those = range(start + length, those.stop) if length else range(0)


def holder_named(pid: int) -> str:
    """Of one in another container the kernel tells the number 0."""
    return f"pid {pid}" if pid else "in another container"


def already_running(name: str, pid: int) -> str:
    return (
        f"cluster {name!r} is already running ({holder_named(pid)}): "
        "stop it with tidelog down, or start another with --cluster NAME"
    )


def _is_strange(path: Path) -> str | None:
    """Why this folder must not be touched; None where it is ours or empty."""
    names = {entry.name for entry in path.iterdir()}
    if "cluster.json" in names or names <= _OUR_FILES_BEFORE_THE_FIRST:
        return None
    return (
        f"{path} is not empty and not a tidelog data folder: "
        "choose another with --data, or remove what is in it"
    )


def read_cluster(path: Path) -> Cluster:
    file = path / "cluster.json"
    if not file.exists():
        return Cluster(cluster_id=new_cluster_id())
    try:
        document = json.loads(file.read_bytes())
        cluster = _checked(document)
    except (ValueError, TypeError) as error:
        raise CannotStartError(
            f"{file} cannot be read ({error}): restore it from a copy, or choose another "
            "folder with --data"
        ) from error
    if cluster.format != FORMAT:
        raise CannotStartError(
            f"{file} has format {cluster.format}, this tidelog reads format {FORMAT}: "
            "use the version that wrote it, or choose another folder with --data"
        )
    return cluster


def _checked(document: Any) -> Cluster:  # noqa: ANN401 -- whatever the file held
    """ValueError or TypeError where a field is missing or of the wrong kind."""
    if not isinstance(document, dict):
        raise TypeError("it is not a JSON object")
    if document.get("format") != FORMAT:
        return Cluster("", format=document.get("format", 0))
    ports = document.get("ports")
    if not isinstance(ports, list):
        raise TypeError("ports is not a list")
    names = ("base_port", "disk_generation", "incarnations_reserved")
    numbers = [*ports, *map(document.get, names), document.get("disk_bytes", 0)]
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError("a number is missing")
    cluster_id = document.get("cluster_id")
    if not isinstance(cluster_id, str) or len(cluster_id) != 22:
        raise ValueError("cluster_id is not a cluster id")
    return Cluster(**document)


def ignore_in_git(data: Path) -> None:
    """A project's own files are above `.tidelog`; what is in it is nobody's work."""
    if data.parent.name == CLUSTERS:
        with (
            contextlib.suppress(OSError),
            (data.parent / ".gitignore").open("x", encoding="utf-8") as file,
        ):
            file.write("*\n")


def new_cluster_id() -> str:
    """Kafka's form; none starts with a dash, which command lines would take for an option."""
    while (text := uuid_text(Uuid(os.urandom(16)))).startswith("-"):
        pass
    return text


def _make_private(data: Path) -> None:
    """Nobody but the owner reaches anything of the cluster, also what an earlier version made.

    Logs of partitions lie below folders that are closed by this; they may be many, and are left as
    they are. What belongs to another user stays as it is, too.
    """
    entries = [data, *data.iterdir()]
    named = [data / "logs", data / "ledgers", data / "coordinator"]
    for folder in (*named, *data.glob("broker-*")):
        with contextlib.suppress(OSError):
            entries += folder.iterdir()
    for entry in entries:
        with contextlib.suppress(OSError):
            mode = entry.lstat().st_mode
            if mode & 0o077 and not stat.S_ISLNK(mode):
                entry.chmod(mode & 0o700)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def replace_file(folder: Path, name: str, document: Mapping[str, object], *, durable: bool) -> None:
    """Old content or new, never a mixture."""
    temporary = folder / f"{name}.new"
    with open(temporary, "w", encoding="utf-8", opener=_private) as file:
        json.dump(document, file, indent=1)
        file.write("\n")
        file.flush()
        if durable:
            os.fsync(file.fileno())
    temporary.replace(folder / name)
    if durable:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def sentences(path: Path) -> Iterator[None]:
    """Whatever the file system refuses, in one sentence that says what to do."""
    try:
        yield
    except OSError as error:
        raise CannotStartError(_file_system_said(path, error)) from error


def _file_system_said(path: Path, error: OSError) -> str:
    other = "choose another folder with --data"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"no space left on the disk of {path}: free some, or {other}"
        case errno.EACCES | errno.EPERM:
            return f"no permission to use {error.filename or path}: change it, or {other}"
        case errno.ENOTDIR | errno.EEXIST:
            return f"{path} is not a folder: {other}"
        case errno.EROFS:
            return f"the disk of {path} is read-only: {other}"
        case _:
            return f"cannot use {path} ({error.strerror}): {other}"
