"""The shared memory of durability ledgers: made, found again, and kept beyond a run. (shell)

A ledger outlives its process: the next life goes on with it. It must outlive the run too, for what
the page cache holds does: at a run's end its ledgers are copied to `DATA/ledgers`, and the next run
takes them from there, unless the machine was started anew in between: then every file that is
there was read from the disk.
"""

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

import posix_ipc

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.launch import ledger_name, ledgers_directory
from tidelog.node.ipc.board import create_memory, memory_of_run, open_memory, remove_memory
from tidelog.node.ipc.ledger_layout import (
    HEADER_BYTES,
    PARTS_MAX,
    check_header,
    is_begun,
    part_bytes,
    write_header,
)


class LedgerMemory:
    """One process's parts, mapped. Their names stay when it is closed."""

    def __init__(self, run_id: str, owner: str, boot_id: str) -> None:
        self.run_id = run_id
        self.owner = owner
        self.boot_id = boot_id
        self._maps: list[mmap.mmap] = []
        self.parts: list[memoryview] = []

    @classmethod
    def open(
        cls, run_id: str, owner: str, boot_id: str, data_dir: str | None = None
    ) -> Self | None:
        """As an earlier life left it, else as an earlier run did, else empty; None: no room."""
        memory = cls(run_id, owner, boot_id)
        try:
            if memory._attach():
                return memory
            saved = [] if data_dir is None else _take_saved(data_dir, owner, boot_id)
            if all(memory._create(content) for content in saved or [b""]):
                return memory
        except CorruptError:
            memory.close()
        remove_ledger(run_id, owner)
        return None

    def grow(self, number: int) -> memoryview | None:
        assert number == len(self.parts), number
        return self.parts[-1] if self._create(b"") else None

    def _attach(self) -> bool:
        for number in range(PARTS_MAX):
            name = ledger_name(self.run_id, self.owner, number)
            try:
                descriptor = open_memory(name)
            except posix_ipc.ExistentialError:
                break
            if not is_begun(os.pread(descriptor, HEADER_BYTES, 0)):
                os.close(descriptor)
                remove_memory(name)  # it is made again when it is needed
                break
            self._map(descriptor)
            check_header(self.parts[-1], name)
        return bool(self.parts)

    def _create(self, content: bytes) -> bool:
        """The next part, with what an earlier run had in it."""
        number = len(self.parts)
        try:
            descriptor = create_memory(
                ledger_name(self.run_id, self.owner, number), part_bytes(number)
            )
        except (OSError, posix_ipc.Error):
            return False
        self._map(descriptor)
        part = self.parts[-1]
        if content:
            part[:] = content
        else:
            write_header(part, self.boot_id)
        return True

    def _map(self, descriptor: int) -> None:
        try:
            size = os.fstat(descriptor).st_size
            if not size:
                raise CorruptError(file=self.owner, position=0, reason="an empty ledger")
            mapped = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._maps.append(mapped)
        self.parts.append(memoryview(mapped))

    def close(self) -> None:
        for part in self.parts:
            part.release()
        for mapped in self._maps:
            mapped.close()
        self.parts.clear()
        self._maps.clear()


def read_ledger(run_id: str, owner: str) -> list[memoryview]:
    """A copy of what a ledger holds, its owner dead or alive; [] where there is none."""
    parts = []
    for number in range(PARTS_MAX):
        name = ledger_name(run_id, owner, number)
        try:
            descriptor = open_memory(name)
        except posix_ipc.ExistentialError:
            break
        content = _content(descriptor)
        if not is_begun(content):
            break
        part = memoryview(content)
        check_header(part, name)
        parts.append(part)
    return parts


def _content(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def remove_ledger(run_id: str, owner: str) -> None:
    """Nothing of it is true any more: after a power loss all that is there is durable."""
    for number in range(PARTS_MAX):
        remove_memory(ledger_name(run_id, owner, number))


def save_ledgers(run_id: str, data_dir: str) -> None:
    """At the end of a run, before its memory is removed. What cannot be saved is left out."""
    begin = ledger_name(run_id, "", None)
    names = [name for name in memory_of_run(run_id) if name.startswith(begin)]
    folder = Path(ledgers_directory(data_dir))
    if not names or not folder.parent.is_dir():
        return
    with suppress(OSError, posix_ipc.Error):
        folder.mkdir(exist_ok=True)
        for name in names:
            content = _content(open_memory(name))
            (folder / name.removeprefix(begin)).write_bytes(content)


def _take_saved(data_dir: str, owner: str, boot_id: str) -> list[bytes]:
    """Once: from now on the memory is the truth. [] where nothing of this boot was saved."""
    folder = Path(ledgers_directory(data_dir))
    found: list[bytes] = []
    for number in range(PARTS_MAX):
        file = folder / f"{owner}-{number}"
        try:
            content = file.read_bytes()
            file.unlink()
        except OSError:
            break
        if not _is_whole(content, number, boot_id):
            return []
        found.append(content)
    return found


def _is_whole(content: bytes, number: int, boot_id: str) -> bool:
    """Whether this is the part of that number, of this boot. A file may have been cut short for
    want of room, or by a power loss."""
    try:
        boot = check_header(memoryview(content), "")
    except CorruptError:
        return False
    return boot == boot_id and len(content) == part_bytes(number)


def saved_parts(data_dir: str, owner: str) -> list[memoryview]:
    """As an earlier run left it, for who only looks: it stays there. [] where nothing was saved."""
    found: list[memoryview] = []
    for number in range(PARTS_MAX):
        file = Path(ledgers_directory(data_dir), f"{owner}-{number}")
        try:
            found.append(memoryview(file.read_bytes()))
        except OSError:
            break
        check_header(found[-1], str(file))
    return found


def helpers_of(owner: str) -> str:
    """How the ledgers of processes are called that write into the directories of another."""
    return f"{owner}-helper-"


def ledgers_left(
    run_id: str, owner: str, data_dir: str | None = None, boot_id: str = ""
) -> list[tuple[str, list[memoryview]]]:
    """Those of its helpers that it has not taken over, in this run or, with a data folder, before
    on this boot: what was saved is forgotten by this."""
    begin = ledger_name(run_id, helpers_of(owner), None)
    parts = [name for name in memory_of_run(run_id) if name.startswith(begin)]
    begin = ledger_name(run_id, "", None)
    names = {name.removeprefix(begin).rpartition("-")[0] for name in parts}
    found = [(name, read_ledger(run_id, name)) for name in sorted(names)]
    if data_dir is not None:
        folder = Path(ledgers_directory(data_dir))
        for file in sorted(folder.glob(f"{helpers_of(owner)}*")):
            content = file.read_bytes()
            file.unlink()
            if _is_whole(content, int(file.name.rpartition("-")[2]), boot_id):
                found.append((file.name, [memoryview(content)]))
    return found


def forget_saved(data_dir: str, owner: str) -> None:
    """As `remove_ledger`, of one that was kept beyond its run."""
    for number in range(PARTS_MAX):
        Path(ledgers_directory(data_dir), f"{owner}-{number}").unlink(missing_ok=True)
