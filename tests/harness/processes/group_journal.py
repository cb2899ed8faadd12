"""What befalls a member of a random run, line by line, as `group_checks.py` reads it."""

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

COMMIT_EVERY_S = 0.5


class Place(Protocol):
    """A partition, whichever client names it."""

    @property
    def partition(self) -> int: ...


class Journal:
    """What befell one member, and how far it read each partition that it has."""

    def __init__(self, file: int, name: str, session_ms: int) -> None:
        self._file = file
        self.name = name
        self.session_ms = session_ms
        self._runs: dict[int, list[int]] = {}
        """From where to where, of what is not written down yet."""
        self._next: dict[int, int] = {}
        """What a commit would say."""
        self._has: set[int] = set()
        self._due = time.monotonic()
        self.leaving = threading.Event()

    def tell(self, kind: str, what: object = None) -> None:
        line = json.dumps([time.monotonic(), self.name, kind, what])
        os.write(self._file, line.encode() + b"\n")

    def assigned(self, places: Iterable[Place]) -> None:
        partitions = [one.partition for one in places]
        self._has.update(partitions)
        self.tell("assigned", partitions)

    def gone(self, kind: str, places: Iterable[Place]) -> None:
        """From here on it neither reads these nor commits them."""
        self._tell_runs()
        partitions = [one.partition for one in places]
        for partition in partitions:
            self._next.pop(partition, None)
        self._has.difference_update(partitions)
        self.tell(kind, partitions)

    def starts_again(self) -> None:
        """All that it has ends here."""
        self._tell_runs()
        self._next.clear()
        self._has.clear()
        self.tell("closed")

    def read(self, partition: int, offset: int, value: bytes | None) -> None:
        if value != b"%d" % offset:
            self.tell("failed", f"at {offset} of {partition} is {value!r}")
        run = self._runs.setdefault(partition, [offset, offset])
        if run[1] != offset:
            self._tell_run(partition)
            run = self._runs[partition] = [offset, offset]
        run[1] = self._next[partition] = offset + 1

    def to_commit(self, among: Iterable[Place] | None = None) -> dict[int, int]:
        """What was processed and not committed; told before it is asked for."""
        wanted = set(self._next) if among is None else {one.partition for one in among}
        found = {one: self._next.pop(one) for one in sorted(wanted & set(self._next))}
        if found:
            self._tell_runs()
            self.tell("commit", found)
        self._due = time.monotonic() + COMMIT_EVERY_S
        return found

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def answered(self, offsets: Mapping[int, int], error: object = None) -> None:
        if error is None:
            self.tell("committed", offsets)
            return
        self.tell("refused", [offsets, str(error)])
        for partition in self._has & offsets.keys():
            self._next.setdefault(partition, offsets[partition])  # it is said again

    def _tell_runs(self) -> None:
        for partition in list(self._runs):
            self._tell_run(partition)

    def _tell_run(self, partition: int) -> None:
        self.tell("read", [partition, *self._runs.pop(partition)])
