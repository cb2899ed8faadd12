"""What happened to a partition, out of what every process recorded: on the board and in its log.

The board has the last events of each process, also of one that was killed before it could write
them down; the logs have all that came before, and outlive the cluster.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import posix_ipc

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import uuid_text
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.events import Event
from tidelog.node.ipc.layout import Role
from tidelog.node.runtime.recorder import moment

_HEAD = frozenset(
    {"time", "level", "process", "pid", "event", "at", "number", "incarnation"}
    | {"partition", "topic_id"}
)


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One event; ordered by its moment, which all processes take from the same clock."""

    at: str
    process: str
    number: int
    """Counted by its process, in one run of the cluster."""
    incarnation: int
    event: str
    partition: int
    """-1 where it is about a broker as a whole."""
    topic_id: str
    topic: str
    """Empty where it was not known any more, or the board does not say."""
    fields: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str, int]:
        """The same on the board and in the log."""
        return self.at, self.process, self.number


def gather(run_id: str | None, logs: Path) -> list[Entry]:
    """Everything, once, in the order of time."""
    found = {entry.key: entry for entry in _from_logs(logs)}
    if run_id is not None:
        for entry in _from_board(run_id):
            found.setdefault(entry.key, entry)
    return sorted(found.values(), key=lambda entry: entry.key)


def _from_board(run_id: str) -> Iterator[Entry]:
    try:
        board = Board.open(board_name(run_id))
    except (posix_ipc.ExistentialError, CorruptError):
        return  # the run has just ended
    with board:
        for slot in range(board.slots):
            for event in board.events(slot):
                yield _of_event(_process_of(slot), event)


def _process_of(slot: int) -> str:
    """As its log is called."""
    if slot >= Role.BROKER:
        return f"broker-{slot - Role.BROKER}"
    return f"{Role(slot).name.lower().replace('_', '-')}-0"


def _of_event(process: str, event: Event) -> Entry:
    return Entry(
        at=moment(event.wall_ns),
        process=process,
        number=event.number,
        incarnation=event.incarnation,
        event=event.kind.word,
        partition=event.partition,
        topic_id=uuid_text(event.topic) if event.partition >= 0 else "",
        topic="",
        fields=event.fields,
    )


def _from_logs(folder: Path) -> Iterator[Entry]:
    for path in sorted(folder.glob("*.log*")):
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    entry = _of_line(line) if '"number": ' in line and '"at": ' in line else None
                    if entry is not None:
                        yield entry
        except FileNotFoundError:
            continue  # begun anew at this moment


def _of_line(line: str) -> Entry | None:
    """What a log's line says; None where it is another one, or not whole."""
    try:
        said = json.loads(line)
        topic, _, partition = said.get("partition", "-").rpartition("-")
        return Entry(
            at=said["at"],
            process=said["process"],
            number=said["number"],
            incarnation=said["incarnation"],
            event=said["event"],
            partition=int(partition or -1),
            topic_id=said.get("topic_id", ""),
            topic=topic,
            fields={name: value for name, value in said.items() if name not in _HEAD},
        )
    except (ValueError, KeyError, AttributeError):
        return None


def newest_id(entries: Iterable[Entry], topic: str) -> str | None:
    """The id of the last topic of this name that the logs speak of."""
    ids = [entry.topic_id for entry in entries if entry.topic == topic]
    return ids[-1] if ids else None


def of_partition(entries: Iterable[Entry], topic_id: str, partition: int) -> list[Entry]:
    """What is about it, and about the brokers that have it, from its first event on."""
    entries = list(entries)
    own = [one for one in entries if (one.topic_id, one.partition) == (topic_id, partition)]
    if not own:
        return []
    brokers = {broker for one in own for broker in _brokers_of(one)}
    return [
        one
        for one in entries
        if one.at >= own[0].at
        and (
            (one.topic_id, one.partition) == (topic_id, partition)
            or (one.partition < 0 and one.fields.get("broker") in brokers)
        )
    ]


def _brokers_of(entry: Entry) -> Iterator[int]:
    """Those that hold the partition, as far as this event tells."""
    name, _, number = entry.process.rpartition("-")
    if name == "broker":
        yield int(number)
    for value in entry.fields.values():
        if isinstance(value, list):
            yield from value
