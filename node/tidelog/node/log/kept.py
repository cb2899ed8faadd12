"""Which logs of a directory hold, on stable storage, all that was ever vouched for in them.

A power loss takes nothing of these that anyone counts on, so their replicas keep their places after
one. What stands in the file was so whenever it stood there: a log enters it when all of it is
flushed and nothing is vouched for before its flush, and leaves it before that ends.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.kernel.files import Directory
from tidelog.kernel.ids import Partition, TopicPartition, Uuid, uuid_from_text, uuid_text
from tidelog.wire.checkpoints import counted_rows
from tidelog.wire.crc import crc32c

KEPT_NAME: Final = "tidelog.kept"

Rows = Mapping[TopicPartition, Uuid]


class KeptFile(NamedTuple):
    """The file as it shall be. `write` may run in any thread."""

    directory: Directory
    rows: Rows

    def write(self) -> None:
        self.directory.replace(KEPT_NAME, encode_kept(self.rows))


class Kept:
    """Invariant: while a log is in the file, or may be, `holds` says so."""

    def __init__(self) -> None:
        self._in_file: Rows = {}
        self._written: Rows | None = None
        """What is being written."""
        self._wanted: dict[TopicPartition, Uuid] = {}

    def load(self, directory: Directory, *, trusted: bool = True) -> None:
        """What an earlier life left; not `trusted`: none of it is to be believed, or to stay."""
        self._in_file = decode_kept(directory.read_all(KEPT_NAME))
        self._wanted = dict(self._in_file) if trusted else {}

    @property
    def rows(self) -> Rows:
        """What the file says, of those that shall stay in it."""
        return {key: topic for key, topic in self._in_file.items() if key in self._wanted}

    def add(self, key: TopicPartition, topic: Uuid) -> None:
        self._wanted[key] = topic

    def strike(self, key: TopicPartition) -> None:
        self._wanted.pop(key, None)

    def holds(self, key: TopicPartition) -> bool:
        """Whether the file may say it of this log."""
        return key in self._in_file or (self._written is not None and key in self._written)

    def begin(self, directory: Directory) -> KeptFile | None:
        """What to write now, where it is not what stands there."""
        assert self._written is None
        if self._wanted == self._in_file:
            return None
        self._written = dict(self._wanted)
        return KeptFile(directory, self._written)

    def ended(self, *, well: bool) -> None:
        """It is on stable storage; or nobody knows what is."""
        written, self._written = self._written, None
        assert written is not None
        self._in_file = written if well else {**self._in_file, **written}


def encode_kept(rows: Rows) -> bytes:
    lines = "".join(
        f"{topic} {partition} {uuid_text(topic_id)}\n"
        for (topic, partition), topic_id in sorted(rows.items())
    )
    body = f"0\n{len(rows)}\n{lines}".encode("ascii")
    return body + f"{crc32c(body):08x}\n".encode("ascii")


def decode_kept(content: bytes | None) -> dict[TopicPartition, Uuid]:
    """Nothing where it is not whole: who is not in it is trusted with less, never with more."""
    body, checksum = (content or b"")[:-9], (content or b"")[-9:]
    if not body or checksum != f"{crc32c(body):08x}\n".encode("ascii"):
        return {}
    rows = (row.split(" ") for row in counted_rows(body))  # whole, so it is ours
    return {
        (topic, Partition(int(number))): uuid_from_text(topic_id)
        for topic, number, topic_id in rows
    }
