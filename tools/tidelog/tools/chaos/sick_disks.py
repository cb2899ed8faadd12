"""Makes disks of a running cluster sick, heals them, and says what is wrong with which."""

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import posix_ipc
from msgspec import Struct, structs

from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.launch import board_name, broker_directories
from tidelog.kernel.limits import BROKERS_MAX, DISK_FAULTS_MAX
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.fault_layout import ANY, Ailment, DiskFault, Operation, Sheet
from tidelog.node.ipc.fault_memory import FaultPage
from tidelog.tools.output import counted, listed, moment
from tidelog.tools.supervisor.folder import Cluster, read_cluster

WRITES: Final = Operation.WRITE | Operation.CREATE | Operation.REPLACE | Operation.NAME
OPERATIONS: Final = {"read": Operation.READ, "write": WRITES, "fsync": Operation.SYNC}
"""As errors and slowness strike them."""
ROOM: Final = {
    "write": Operation.WRITE,
    "roll": Operation.CREATE,
    "checkpoint": Operation.REPLACE,
    "fsync": Operation.SYNC,
}
"""Where a full disk is found out."""
_LOOKS_MAX: Final = 100
_LOOK_AGAIN_S: Final = 0.001


class TooManyError(Exception):
    """A broker has as many faults as there is room for."""


class Sick(Struct, frozen=True):
    """One fault of a broker's disks, as it is now."""

    broker: int
    fault: DiskFault
    struck: int
    log_dir: str | None
    """Of which directory alone."""
    is_over: bool
    """It strikes no more, though nobody healed it."""

    @property
    def document(self) -> dict[str, object]:
        fault = self.fault
        return {
            "broker": self.broker,
            "fault": fault.ailment.word,
            "on": _points(fault),
            "error": errno.errorcode[fault.error] if fault.error else None,
            "delay_ms": fault.delay_ns / 1e6 if fault.delay_ns else None,
            "bytes_per_second": fault.bytes_per_second or None,
            "log_dir": self.log_dir,
            "partition": fault.partition or None,
            "file": None if fault.group is None else fault.group.word,
            "since": moment(fault.since_ns // 1_000_000),
            "ends": self._ends,
            "over": self.is_over,
            "struck": self.struck,
        }

    @property
    def _ends(self) -> str:
        if self.fault.times_max:
            return "once"
        return "by itself" if self.fault.until_ns else "healed"

    @property
    def sentence(self) -> str:
        """`fsync of t-0 fails with EIO`, and how often that was."""
        where = f" in {self.log_dir}" if self.log_dir else ""
        return f"{what_of(self.fault, where)}; struck {counted(self.struck, 'time')}"


def what_of(fault: DiskFault, where: str = "") -> str:
    """What happens to which operations."""
    files = "" if fault.group is None else f" of {fault.group.word} files"
    partition = f" of {fault.partition}" if fault.partition else ""
    on = f"{listed(_points(fault))}{files}{partition}{where}"

    def one_or(one: str, many: str) -> str:
        return one if len(_points(fault)) == 1 else many

    match fault.ailment:
        case Ailment.IO_ERROR:
            return f"{on} {one_or('fails', 'fail')} with {errno.errorcode[fault.error]}"
        case Ailment.FULL_DISK:
            return f"{on} {one_or('finds', 'find')} the disk full"
        case Ailment.SLOW_DISK:
            delay = (
                f"{one_or('takes', 'take')} {fault.delay_ns / 1e6:g} ms more"
                if fault.delay_ns
                else ""
            )
            rate = (
                f"{one_or('gets', 'get')} {fault.bytes_per_second} B/s"
                if fault.bytes_per_second
                else ""
            )
            return f"{on} {' and '.join(one for one in (delay, rate) if one)}"


def _points(fault: DiskFault) -> list[str]:
    words = ROOM if fault.ailment is Ailment.FULL_DISK else OPERATIONS
    return [word for word, operations in words.items() if fault.operations & operations]


# -- reading ------------------------------------------------------------------------------------


def sick_in(run_id: str, data: str) -> list[Sick]:
    """Whose faults are on now, in this run of the cluster that lies there."""
    try:
        cluster = read_cluster(Path(data))
    except CannotStartError:
        cluster = Cluster("")  # its directories are unknown, its faults are not
    found = sick_disks(run_id, lambda broker: directories_of(cluster, data, broker))
    return [one for one in found if not one.is_over]


def directories_of(cluster: Cluster, data: str, broker: int) -> tuple[str, ...]:
    """A broker's log directories, in their order."""
    own = {**cluster.settings, **cluster.broker_settings.get(str(broker), {})}
    return broker_directories(data, broker, own)


def sick_disks(run_id: str, directories_of: Callable[[int], Sequence[str]]) -> list[Sick]:
    """Of all brokers of a run, also what is over but was not healed."""
    try:
        board = Board.open(board_name(run_id))
    except (posix_ipc.ExistentialError, CorruptError):
        return []  # the run has ended
    with board:
        sick = [broker for broker in range(BROKERS_MAX) if board.disks.get(broker)]
    return [one for broker in sick for one in _of(run_id, broker, directories_of(broker))]


def _of(run_id: str, broker: int, directories: Sequence[str]) -> Iterator[Sick]:
    page = FaultPage.open(run_id, broker)
    if page is None:
        return
    with page:
        now_ns = time.monotonic_ns()
        for slot, fault in enumerate(_read(page).faults):
            struck = page.struck.count(slot, fault)
            known = 0 <= fault.directory < len(directories)
            yield Sick(
                broker=broker,
                fault=fault,
                struck=struck,
                log_dir=directories[fault.directory] if known else None,
                is_over=fault.is_over(now_ns, struck),
            )


def _read(page: FaultPage) -> Sheet:
    """Somebody may be writing it."""
    for _ in range(_LOOKS_MAX):
        try:
            return page.read()
        except CorruptError:
            time.sleep(_LOOK_AGAIN_S)
    return page.read()


# -- changing -----------------------------------------------------------------------------------


def make_sick(run_id: str, broker: int, faults: Iterable[DiskFault]) -> list[int]:
    """From now on; their numbers. OSError where there is no room in shared memory, TooManyError
    where the broker has as many as it can."""
    numbers = []
    with (
        Board.open(board_name(run_id)) as board,
        FaultPage.make(run_id, broker) as page,
        page.locked(),
    ):
        sheet = page.read()
        for fault in faults:
            numbered = structs.replace(fault, number=sheet.next_number)
            numbers.append(numbered.number)
            sheet = structs.replace(
                sheet,
                generation=sheet.generation + 1,
                next_number=sheet.next_number + 1,
                faults=_with(page, sheet.faults, numbered),
            )
        page.write(board, broker, sheet)
    return numbers


def _with(page: FaultPage, faults: tuple[DiskFault, ...], new: DiskFault) -> tuple[DiskFault, ...]:
    """Each keeps its slot, where its strikes are counted; a new one takes that of one that is
    over."""
    if len(faults) < DISK_FAULTS_MAX:
        return (*faults, new)
    now_ns = time.monotonic_ns()
    for slot, old in enumerate(faults):
        if old.is_over(now_ns, page.struck.count(slot, old)):
            return (*faults[:slot], new, *faults[slot + 1 :])
    raise TooManyError


def heal(run_id: str, brokers: Iterable[int]) -> None:
    """Whatever was done to the disks of these."""
    with Board.open(board_name(run_id)) as board:
        for broker in brokers:
            page = FaultPage.open(run_id, broker)
            if page is None:
                continue
            with page, page.locked():
                sheet = page.read()
                healed = structs.replace(sheet, generation=sheet.generation + 1, faults=())
                page.write(board, broker, healed)


def fault_of(
    ailment: Ailment, operations: Operation, *, directory: int = ANY, **more: object
) -> DiskFault:
    """One that begins now; it gets its number when it is put on."""
    wall_ns = time.time_ns()
    plain = DiskFault(0, ailment, operations, wall_ns, directory=directory)
    return structs.replace(plain, **more)
