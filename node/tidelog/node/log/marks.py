"""How the last process on a log directory ended, and what it left for a quick start.

Kafka's own mark says only that a stop was clean. Ours also says on which boot and disk generation:
the page cache of a killed process lives on, so its files are whole; that of a machine that lost
power does not, so only what was flushed can be trusted, even after a clean stop that flushed not.
"""

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct, field

from tidelog.kernel.ids import NO_EPOCH, ZERO_UUID, Incarnation, Uuid, uuid_from_text, uuid_text
from tidelog.wire.crc import crc32c

MARK_NAME: Final = "tidelog.mark"
_VERSION: Final = 2
_VERSIONS_READ: Final = {1, _VERSION}
"""The first one knew neither epochs nor topic ids."""


class LastStop(Enum):
    """How the directory was left."""

    NEVER_RAN = "never ran"
    CLEAN = "clean"
    KILLED = "killed"
    POWER_LOSS = "power loss"


class ClosedLog(Struct, frozen=True):
    """One log as a clean stop left it: enough to answer for it without reading it."""

    start: int
    end: int
    size_bytes: int
    active_base: int
    active_bytes: int
    active_timestamp: int = -1
    """The largest one of its records."""
    epoch: int = NO_EPOCH
    """The newest leader epoch; one that wrote nothing stands here only."""
    topic_id: Uuid = ZERO_UUID
    """Zero where it must be read from the log's own directory."""
    unstable: bool = False
    """Whether a transaction may be undecided: who reads only what is committed must look."""


class Mark(Struct, frozen=True):
    """Written at start with `clean` false, and again at a clean stop."""

    clean: bool
    synced: bool
    """Everything was flushed before the stop: good on any boot."""
    boot_id: str
    disk_generation: int
    incarnation: Incarnation
    logs: Mapping[str, ClosedLog] = field(default_factory=dict)
    """By directory name."""
    lost_files: bool = False
    """Something was lost before this life, and the cluster has not been told yet."""
    together: frozenset[Uuid] = frozenset()
    """The directories that the broker had in this life, this one among them."""
    missing: frozenset[Uuid] = frozenset()
    """Those that it had and cannot read any more, and the cluster has not been told yet."""

    def last_stop(self, *, boot_id: str, disk_generation: int) -> LastStop:
        """What a start on this boot and disk generation must think of it."""
        cache_lives = self.boot_id == boot_id and self.disk_generation == disk_generation
        if self.clean and (self.synced or cache_lives):
            return LastStop.CLEAN
        return LastStop.KILLED if cache_lives else LastStop.POWER_LOSS


def encode_mark(mark: Mark) -> bytes:
    logs = {
        name: [
            log.start,
            log.end,
            log.size_bytes,
            log.active_base,
            log.active_bytes,
            log.active_timestamp,
            log.epoch,
            uuid_text(log.topic_id),
            log.unstable,
        ]
        for name, log in mark.logs.items()
    }
    body = json.dumps(
        {
            "version": _VERSION,
            "clean": mark.clean,
            "synced": mark.synced,
            "boot_id": mark.boot_id,
            "disk_generation": mark.disk_generation,
            "incarnation": mark.incarnation,
            "logs": logs,
            "lost_files": mark.lost_files,
            "together": sorted(map(uuid_text, mark.together)),
            "missing": sorted(map(uuid_text, mark.missing)),
        },
        separators=(",", ":"),
    ).encode("ascii")
    return body + f"\n{crc32c(body):08x}\n".encode("ascii")


def decode_mark(content: bytes | None) -> Mark | None:
    """None where there is none, or it is not whole: then nothing is known of the last stop."""
    body, _, checksum = (content or b"").rpartition(b"\n")[0].rpartition(b"\n")
    if not body or checksum != f"{crc32c(body):08x}".encode("ascii"):
        return None
    said: dict[str, Any] = json.loads(body)  # whole, as its checksum says, so it is ours
    if said.get("version") not in _VERSIONS_READ:
        return None
    return Mark(
        clean=said["clean"],
        synced=said["synced"],
        boot_id=said["boot_id"],
        disk_generation=said["disk_generation"],
        incarnation=said["incarnation"],
        logs={name: _closed_log(*row) for name, row in said["logs"].items()},
        lost_files=said.get("lost_files", False),
        together=frozenset(map(uuid_from_text, said.get("together", ()))),
        missing=frozenset(map(uuid_from_text, said.get("missing", ()))),
    )


def _closed_log(*row: Any) -> ClosedLog:  # noqa: ANN401 -- numbers, then a text
    numbers, topic_id, unstable = row[:7], row[7:8], row[8:]
    return ClosedLog(*numbers, *map(uuid_from_text, topic_id), *unstable)
