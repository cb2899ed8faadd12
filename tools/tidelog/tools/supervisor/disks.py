"""Disks of a cluster's own: a file system for each broker, and one for its coordinators.

```
DATA/disks/broker-0.ext4   the image; it takes the space that is used of it
DATA/disks/broker-0.lock   held by who makes, mounts, cuts or unmounts it
DATA/broker-0              where it is mounted, by a loop device, while the cluster runs
```
Mounts are the machine's, so that every command finds the files where they always are. Who uses a
disk mounts it before its first look; a run unmounts all at its end, and the next start of any
cluster what dead runs have left. The kernel frees a loop device with its mount.
"""

import ctypes
import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from msgspec import Struct

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.launch import broker_directories
from tidelog.kernel.limits import DISK_BYTES_MAX, DISK_BYTES_MIN
from tidelog.kernel.sizes import byte_count
from tidelog.node.ipc.layout import Role
from tidelog.node.runtime.process import EventLog
from tidelog.tools.supervisor.folder import Cluster, held_for_a_moment, sentences
from tidelog.tools.supervisor.plan import Name
from tidelog.tools.supervisor.power import files_of

SIZE_DEFAULT = 1 << 30
PROGRAMS = ("mkfs.ext4", "mount", "losetup")
_SUFFIX = ".ext4"
_LOOP_CONTROL = "/dev/loop-control"
_MOUNTS = Path("/proc/self/mountinfo")
_MOUNT_POINT = 4
_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN = 21
_PROGRAM_ENDS_WITHIN_S = 60.0
_LOCKED_WITHIN_S = 30.0
_BUSY_FOR_S = 0.5
"""As long as a helper of a dead process may take to end; then it is unmounted all the same."""
_IN_USE_FOR_S = 1.0
_LOOK_EVERY_S = 0.01
_MNT_DETACH = 2

log = EventLog("supervisor")


class Machine(Struct, frozen=True):
    """What of a machine such disks hang on."""

    is_root: bool
    may_mount: bool
    """Which root may not in most containers."""
    programs_missing: tuple[str, ...]
    has_loop_devices: bool


class Disk(Struct, frozen=True):
    """One file system, and where it is to be seen."""

    image: Path
    place: Path

    @property
    def lock(self) -> Path:
        return self.image.with_suffix(".lock")

    @property
    def is_mounted(self) -> bool:
        return os.path.ismount(self.place)


def disk_of(data: str | Path, name: str) -> Disk:
    """By the name of its ledger: `broker-0`, `coordinator`."""
    return Disk(Path(data, "disks", f"{name}{_SUFFIX}"), Path(data, name))


def disks_in(data: Path) -> list[Disk]:
    """Those that were ever made there, and are: an image may be deleted while it is mounted."""
    names = {image.stem for image in data.glob(f"disks/*{_SUFFIX}")}
    here = data.resolve()
    names |= {
        place.name
        for place, device in _mounted()
        if place.parent == here and _is_image_of(device, place.name)
    }
    return [disk_of(data, name) for name in sorted(names)]


# -- what is asked for --------------------------------------------------------------------------


def size_asked(text: str) -> int | None:
    """Of `loop:256MiB`; 0 of `loop`, which names no size; None where it is neither.

    >>> size_asked("loop"), size_asked("loop:64MiB"), size_asked("loop:"), size_asked("xfs")
    (0, 67108864, None, None)
    """
    kind, colon, size = text.partition(":")
    if kind != "loop":
        return None
    return byte_count(size) if colon else 0


def settled(name: str, cluster: Cluster, asked: int | None) -> int:
    """The size of its disks, 0 for none; CannotStartError where its data lies otherwise."""
    if asked is None:
        return cluster.disk_bytes
    if not cluster.ports:
        size = asked or SIZE_DEFAULT
        assert DISK_BYTES_MIN <= size <= DISK_BYTES_MAX, size
        return size
    if not cluster.disk_bytes:
        raise CannotStartError(
            f"cluster {name!r} has its data on no disks of its own: start it without --disks, or "
            "another with --cluster NAME"
        )
    if asked not in {0, cluster.disk_bytes}:
        raise CannotStartError(
            f"cluster {name!r} has disks of {cluster.disk_bytes >> 20} MiB: leave :SIZE out, or "
            "start another with --cluster NAME"
        )
    return cluster.disk_bytes


def refuse_elsewhere(data: str, broker: int, settings: Mapping[str, str]) -> str | None:
    """Why a broker's logs are not all on its disk; None where they are."""
    own = f"{data}/broker-{broker}/"
    away = [one for one in broker_directories(data, broker, settings) if not one.startswith(own)]
    if not away:
        return None
    return (
        f"broker {broker} keeps logs in {away[0]}, which is not on its disk: "
        "give log.dirs names instead of paths"
    )


def this_machine() -> Machine:
    import shutil  # noqa: PLC0415 -- only a cluster with such disks needs it: not every start

    return Machine(
        is_root=os.geteuid() == 0,
        may_mount=_has_capability(_CAP_SYS_ADMIN),
        programs_missing=tuple(one for one in PROGRAMS if shutil.which(one) is None),
        has_loop_devices=os.access(_LOOP_CONTROL, os.R_OK | os.W_OK),
    )


def _has_capability(number: int) -> bool:
    (line,) = (one for one in _STATUS.read_text().splitlines() if one.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> number & 1)


def lacking(machine: Machine) -> str | None:
    """Why no disks can be made on it, in a sentence; None where they can."""
    missing = list(machine.programs_missing)
    if not machine.is_root:
        missing.insert(0, "root")  # who else may not mount, nor see whether there are loop devices
    else:
        missing += [] if machine.may_mount else ["right to mount (CAP_SYS_ADMIN)"]
        missing += [] if machine.has_loop_devices else ["use of loop devices"]
    if not missing:
        return None
    return (
        f"disks of a cluster's own need root, {', '.join(PROGRAMS)} and loop devices, and here "
        f"is no {' and no '.join(missing)}; chaos power-loss --tier 0 needs none of it"
    )


# -- made, mounted, unmounted -------------------------------------------------------------------


def provide(data: str, name: str, size_bytes: int) -> None:
    """Make it where there is none, and mount it where it is not; CannotStartError. Only by who
    will use it, or has all who use it dead."""
    disk = disk_of(data, name)
    with sentences(disk.image):
        disk.image.parent.mkdir(exist_ok=True)
        with held(disk) as lock:
            if disk.is_mounted and _works(disk.place):
                return
            if not disk.image.exists():
                make(disk, size_bytes, lock)
            mount(disk, lock)


def refuse_to_provide(data: str, name: Name, size_bytes: int) -> str | None:
    """Why a process cannot have its disk; None where it has it, or needs none."""
    if not size_bytes or name.role is Role.TRANSACTION_COORDINATOR:
        return None
    try:
        provide(data, files_of(name), size_bytes)
    except CannotStartError as error:
        return str(error)
    return None


@contextmanager
def held(disk: Disk) -> Iterator[int]:
    """Nobody else makes, mounts or unmounts it meanwhile, and no program that somebody who was
    killed has left behind: those inherit the lock."""
    descriptor = os.open(disk.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCKED_WITHIN_S
        while not _lock(descriptor):
            if time.monotonic() >= deadline:
                raise CannotStartError(
                    f"somebody else mounts or unmounts {disk.place} and does not end: "
                    f"see fuser {disk.lock}"
                )
            time.sleep(_LOOK_EVERY_S)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make(disk: Disk, size_bytes: int, lock: int) -> None:
    """Whole or not at all."""
    new = disk.image.with_suffix(".new")
    with new.open("wb") as file:
        file.truncate(size_bytes)
    _run(["mkfs.ext4", "-q", "-F", str(new)], lock)
    new.replace(disk.image)


def mount(disk: Disk, lock: int) -> None:
    """Also where the mount that is there was shut down."""
    if disk.is_mounted:
        detach(disk.place)
    _wait_until_let_go(disk, lock)
    disk.place.mkdir(parents=True, exist_ok=True)
    _run(["mount", "-t", "ext4", "-o", "loop", str(disk.image), str(disk.place)], lock)
    with suppress(OSError):  # it is there once, or again where a repair had to put something in it
        (disk.place / "lost+found").rmdir()
        _sync(disk.place)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _works(place: Path) -> bool:
    """Whether the file system was not shut down."""
    try:
        os.close(os.open(place, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        return error.errno != errno.EIO
    return True


def _wait_until_let_go(disk: Disk, lock: int) -> None:
    """A file system that is unmounted lives on while anybody has a file of it open, or sees it in
    a mount namespace of their own: a second one on the same image would destroy it."""
    deadline = time.monotonic() + _IN_USE_FOR_S
    while device := _run(["losetup", "-n", "-O", "NAME", "-j", str(disk.image)], lock).strip():
        if time.monotonic() >= deadline:
            raise CannotStartError(
                f"{disk.image} is still in use by {' '.join(device.split())}: end what has files "
                f"of {disk.place} open, or its current folder there"
            )
        time.sleep(_LOOK_EVERY_S)


def _run(words: Sequence[str], lock: int) -> str:
    import subprocess  # noqa: PLC0415 -- as above

    try:
        done = subprocess.run(  # noqa: S603 -- programs of this module, on paths of our own
            words,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROGRAM_ENDS_WITHIN_S,
            pass_fds=(lock,),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStartError(f"cannot run {words[0]}: {error}") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise CannotStartError(
            f"{' '.join(words)} failed: {said}; chaos power-loss --tier 0 needs no disks"
        )
    return done.stdout


def detach(place: Path) -> None:
    """What strangers have open there keeps the file system alive, but nobody finds it any more."""
    deadline = time.monotonic() + _BUSY_FOR_S
    while True:
        try:
            _unmount(place, 0)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_EVERY_S)
        else:
            return
    log.warning("disk_still_open", place=str(place))
    _unmount(place, _MNT_DETACH)


def _unmount(place: Path, flags: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.umount2(bytes(place), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(place))


# -- what must not stay -------------------------------------------------------------------------


def free(data: Path) -> None:
    """Unmount all of a folder that is ours, at the end of a run or after one that died."""
    for disk in disks_in(data):
        try:
            # Without its folder nobody makes or mounts one.
            with held(disk) if disk.lock.parent.is_dir() else nullcontext():
                while disk.is_mounted:
                    detach(disk.place)
        except (OSError, CannotStartError) as error:
            log.warning("disk_stays_mounted", place=str(disk.place), reason=str(error))


def free_unheld(data: Path) -> None:
    """The same, of a folder that may be somebody's: not for who has it."""
    if not any(disk.is_mounted for disk in disks_in(data)):
        return
    with held_for_a_moment(data) as nobody_has_it:
        if nobody_has_it:
            free(data)


def sweep(ours: Path) -> None:
    """What runs that died have left mounted anywhere; `ours` is the folder that we have."""
    for data in sorted({place.parent for place, _ in _mounted()} - {ours.resolve()}):
        if (data / "cluster.json").exists():
            free_unheld(data)


def _mounted() -> Iterator[tuple[Path, str]]:
    """Places and loop devices."""
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        words = line.split(" ")
        if " - ext4 /dev/loop" in line:
            yield Path(_unescaped(words[_MOUNT_POINT])), words[words.index("-") + 2]


def _is_image_of(device: str, name: str) -> bool:
    """Whether a loop device shows the image of a disk of that name, deleted or not."""
    file = Path("/sys/block", Path(device).name, "loop/backing_file")
    try:
        image = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return False
    return image.removesuffix(" (deleted)").endswith(f"/disks/{name}{_SUFFIX}")


def _unescaped(text: str) -> str:
    r"""As the kernel writes paths there.

    >>> _unescaped(r"/a\040b\134c")
    '/a b\\c'
    """
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def discard(data: Path, name: str) -> None:
    """Of a broker that was removed."""
    disk = disk_of(data, name)
    if not disk.image.exists():
        return
    with held(disk):
        if disk.is_mounted:
            detach(disk.place)
        disk.image.unlink()
    disk.lock.unlink()
