"""The byte layout of the board: one slot of facts and a ring of events per process, fence words.

```
header   64   magic, version, number of slots, size of the whole
fences  512   one word per broker, written by the active coordinator only
links 16384   fault switches of the pipes between brokers
disks   512   one word per broker: 0 while its disks are well, else which page of faults is on
slot i 1024   sequence, heartbeat, CRC; at byte 64 the words, written by process i only
ring i        after the last slot: what happened, written by process i only (`events.py`)
```
All numbers are native: the board never leaves its machine. A reader trusts nothing it did not
check: it copies the words between two looks at the sequence, then compares the CRC, so it sees
what was published or nothing, never a mixture, also where a writer was killed in the middle.
"""

import struct
import zlib
from array import array
from enum import IntEnum

from msgspec import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Incarnation, Offset
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import BROKERS_MAX, STANDBYS_MAX
from tidelog.node.ipc.events import RING_BYTES

MAGIC = b"tideBORD"
VERSION = 4
_HEADER = struct.Struct("@8sIIQ")
_HEADER_BYTES = 64
_FENCE_BYTES = 8 * BROKERS_MAX
_LINKS_AT = _HEADER_BYTES + _FENCE_BYTES
_LINKS_BYTES = 4 * BROKERS_MAX * BROKERS_MAX
_DISKS_AT = _LINKS_AT + _LINKS_BYTES
_DISKS_BYTES = 8 * BROKERS_MAX
_SLOTS_AT = _DISKS_AT + _DISKS_BYTES
_SLOT_BYTES = 1024
_SLOT_HEAD_BYTES = 64
_SEQUENCE, _HEARTBEAT, _CRC, _CRASHED = range(4)
WORDS_PER_SLOT = (_SLOT_BYTES - _SLOT_HEAD_BYTES) // 8
_READ_ATTEMPTS_MAX = 64
_FIRST_BROKER_SLOT = 8
_STANDBY_SLOTS = (3, 5, 6, 7)
SLOTS = _FIRST_BROKER_SLOT + BROKERS_MAX


class Role(IntEnum):
    """What a process is; also its slot, but for brokers, which are further up by their ids, and the
    coordinators after the first one. Which of these leads changes, their slots do not."""

    NONE = 0
    SUPERVISOR = 1
    COORDINATOR = 2
    STANDBY = 3
    TRANSACTION_COORDINATOR = 4
    BROKER = _FIRST_BROKER_SLOT


class SlotState(IntEnum):
    """What a process says of itself; whether it lives only the kernel knows."""

    EMPTY = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    FENCED = 4


class Word(IntEnum):
    """The words of a slot. Counters only grow during one life of the process."""

    ROLE = 0
    ID = 1
    PID = 2
    STATE = 3
    INCARNATION = 4
    # the coordinator's
    CONTROLLER_EPOCH = 5
    METADATA_OFFSET = 6  # a broker: up to where it has applied the metadata log
    TOPICS = 7
    PARTITIONS = 8
    UNDER_REPLICATED = 9
    UNDER_MIN_ISR = 10
    OFFLINE = 11
    # a broker's, as they are now
    LEADERS = 12
    REPLICAS = 13
    CONNECTIONS = 14
    LOG_BYTES = 15
    FLUSH_POLICY = 16  # as `FlushRules.code`; 0: it has not said yet
    NO_ROOM_AT = 17  # when it last found no room for a batch, an `Instant`; 0: it has room
    NOT_COMPACTED = 18  # partitions whose compaction fails
    # a broker's counters
    CONNECTIONS_ACCEPTED = 20
    CONNECTIONS_REFUSED = 21
    REQUESTS = 22
    BYTES_IN = 23
    BYTES_OUT = 24
    FRAMES_REFUSED = 25
    PRODUCE_REQUESTS = 26
    PRODUCE_BATCHES = 27
    PRODUCE_BYTES = 28
    PRODUCE_REFUSED = 29
    FETCH_REQUESTS = 30
    FETCH_BYTES = 31
    FETCH_REFUSED = 32
    FLUSHES = 33
    LAST_FLUSH_AT = 34  # when the last one that went well was over, an `Instant`; 0: none was yet
    LAST_FLUSH_NS = 35  # how long it took
    # the transaction coordinator's
    TRANSACTIONS_OPEN = 36  # as they are now; the two below are counters
    TRANSACTIONS_COMMITTED = 37
    TRANSACTIONS_ABORTED = 38
    # of a broker's page cache
    HELD = 41  # bytes, by logs under a bound, at the last look; the others are counters
    WRITTEN_BACK = 42  # bytes given to the disk behind the writers
    DROPPED = 43  # bytes of logs under a bound
    COLD_READS = 44  # ranges that were not in memory, or had to be checked
    DROPPED_BEHIND = 45  # bytes, behind consumers
    # of every process
    STARTED = 46  # when the process of this pid started, in the kernel's ticks; 0: it does not say
    # the supervisor's
    SYNC_AT_STOP = 40  # 1: flush everything before ending, as `down --sync` asks


assert max(Word) < WORDS_PER_SLOT
assert max(role for role in Role if role is not Role.BROKER) < _FIRST_BROKER_SLOT
assert len(_STANDBY_SLOTS) == STANDBYS_MAX


def board_size_bytes(slots: int) -> int:
    return _SLOTS_AT + slots * (_SLOT_BYTES + RING_BYTES)


def slot_of(role: Role, process_id: int = 0) -> int:
    """Where a process writes."""
    if role is Role.COORDINATOR and process_id:
        return _STANDBY_SLOTS[process_id - 1]
    if role is not Role.BROKER:
        return int(role)
    assert 0 <= process_id < BROKERS_MAX, process_id
    return _FIRST_BROKER_SLOT + process_id


def write_header(board: memoryview, slots: int) -> None:
    """Last of all: who opens a board without a header finds it unfinished."""
    size = board_size_bytes(slots)
    assert len(board) == size, (len(board), size)
    _HEADER.pack_into(board, 0, MAGIC, VERSION, slots, size)


def check_header(board: memoryview, name: str) -> int:
    """The number of slots; CorruptError where this is no board of this version."""
    if len(board) < _HEADER_BYTES:
        raise CorruptError(file=name, position=len(board), reason="shorter than a board's header")
    magic, version, slots, size = _HEADER.unpack_from(board)
    if magic != MAGIC or version != VERSION:
        raise CorruptError(file=name, position=0, reason="not a board of this version")
    if size != len(board) or size != board_size_bytes(slots):
        raise CorruptError(file=name, position=16, reason="size and number of slots disagree")
    return int(slots)


def slot_view(board: memoryview, slot: int) -> memoryview:
    start = _SLOTS_AT + slot * _SLOT_BYTES
    view = board[start : start + _SLOT_BYTES]
    assert len(view) == _SLOT_BYTES, slot
    return view


def ring_view(board: memoryview, slot: int, slots: int) -> memoryview:
    """Where the process of that slot records what happened."""
    assert 0 <= slot < slots, slot
    start = board_size_bytes(slots) - (slots - slot) * RING_BYTES
    view = board[start : start + RING_BYTES]
    assert len(view) == RING_BYTES, slot
    return view


class Fences:
    """For each broker the highest broker epoch that the cluster has given up: its registration's
    offset in the metadata log. One aligned word each; 0 where none was given up."""

    def __init__(self, board: memoryview) -> None:
        self._words = board[_HEADER_BYTES : _HEADER_BYTES + _FENCE_BYTES].cast("q")

    def fence(self, broker: BrokerId, epoch: Offset) -> None:
        """The active coordinator's alone: once it is decided for good, before others hear of it."""
        assert epoch >= self._words[broker], "a fence is never lifted"
        self._words[broker] = epoch

    def is_fenced(self, broker: BrokerId, epoch: Offset) -> bool:
        return self._words[broker] >= epoch

    def release(self) -> None:
        self._words.release()


class Links:
    """Fault switches of the pipes between brokers, one aligned word for each direction: whole (0),
    slower by so many milliseconds, or cut. Whoever injects faults writes, senders look."""

    CUT = (1 << 32) - 1

    def __init__(self, board: memoryview) -> None:
        self._words = board[_LINKS_AT : _LINKS_AT + _LINKS_BYTES].cast("I")

    def set(self, sender: BrokerId, to: BrokerId, word: int) -> None:
        self._words[sender * BROKERS_MAX + to] = word

    def get(self, sender: BrokerId, to: BrokerId) -> int:
        return self._words[sender * BROKERS_MAX + to]

    def release(self) -> None:
        self._words.release()


class Disks:
    """Fault switches of brokers' disks, one aligned word each: 0, or the generation of the page
    that says what is wrong (`fault_layout.py`). Whoever injects faults writes it, last of all."""

    def __init__(self, board: memoryview) -> None:
        self._words = board[_DISKS_AT : _DISKS_AT + _DISKS_BYTES].cast("q")
        self._given: list[memoryview] = []

    def set(self, broker: int, generation: int) -> None:
        self._words[broker] = generation

    def get(self, broker: int) -> int:
        return self._words[broker]

    def word(self, broker: int) -> memoryview:
        """The very word, to be looked at before each operation."""
        self._given.append(self._words[broker : broker + 1])
        return self._given[-1]

    def release(self) -> None:
        for word in self._given:
            word.release()
        self._words.release()


class Slot(Struct, frozen=True):
    """What a process last published, and its last heartbeat (0: none yet)."""

    heartbeat: Instant
    words: tuple[int, ...]

    def __getitem__(self, word: Word) -> int:
        return self.words[word]


class SlotWriter:
    """The one writer of a slot: change `words`, then `publish` them all at once."""

    def __init__(self, slot: memoryview) -> None:
        self.words = array("q", bytes(8 * WORDS_PER_SLOT))
        self._source = memoryview(self.words).cast("B")
        self._head = slot[:_SLOT_HEAD_BYTES].cast("q")
        self._target = slot[_SLOT_HEAD_BYTES:]
        # Even, and ahead of what an earlier life left, also where that died in the middle.
        self._sequence = (self._head[_SEQUENCE] | 1) + 1

    def begin(
        self, *, role: Role, process_id: int, pid: int, incarnation: Incarnation, started: int = 0
    ) -> None:
        """A new life: nothing of the last one stays, not even its heartbeat. Whoever does not say
        when it started is never signalled by others of its run."""
        self._head[_HEARTBEAT] = 0
        self._source[:] = bytes(len(self._source))
        self.words[Word.ROLE] = role
        self.words[Word.ID] = process_id
        self.words[Word.PID] = pid
        self.words[Word.STARTED] = started
        self.words[Word.INCARNATION] = incarnation
        self.words[Word.STATE] = SlotState.STARTING
        self.publish()

    def publish(self) -> None:
        sequence = self._sequence + 2
        self._head[_SEQUENCE] = sequence - 1
        self._target[:] = self._source
        self._head[_CRC] = zlib.crc32(self._source, sequence)
        self._head[_SEQUENCE] = sequence
        self._sequence = sequence

    def heartbeat(self, now: Instant) -> None:
        """By the event loop every 100 ms, never by a thread: it shows that the loop turns."""
        self._head[_HEARTBEAT] = now

    def crashed(self) -> None:
        """This life ends by a bug of its own. The next life in the slot leaves that there."""
        self._head[_CRASHED] = self.words[Word.INCARNATION]

    def release(self) -> None:
        """Let go of the shared memory; nothing may be written after this."""
        self._head.release()
        self._target.release()


def read_crashed(slot: memoryview) -> Incarnation:
    """The last life in this slot that ended by a bug of its own; 0 if none has."""
    with slot[:_SLOT_HEAD_BYTES].cast("q") as head:
        return Incarnation(head[_CRASHED])


def read_slot(slot: memoryview) -> Slot | None:
    """What was last published; None where nothing was, or its writer died in the middle."""
    with slot[:_SLOT_HEAD_BYTES].cast("q") as head:
        for _ in range(_READ_ATTEMPTS_MAX):
            sequence = head[_SEQUENCE]
            words = bytes(slot[_SLOT_HEAD_BYTES:])
            crc = head[_CRC]
            if sequence % 2 or sequence == 0 or head[_SEQUENCE] != sequence:
                continue
            if zlib.crc32(words, sequence) == crc:
                return Slot(Instant(head[_HEARTBEAT]), tuple(memoryview(words).cast("q")))
    return None
