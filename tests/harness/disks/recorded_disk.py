"""A real disk with a ledger, in a folder of its own: its user can be killed, and lose power."""

import os
from pathlib import Path
from typing import Self

from tidelog.node.ipc.ledger_memory import LedgerMemory, read_ledger, remove_ledger
from tidelog.node.runtime.disk import DiskDirectory, open_disk
from tidelog.node.runtime.ledger import Ledger
from tidelog.tools.chaos.power_loss import Image, draw_image, make_image
from tidelog.tools.chaos.survey import SeenFile, Survey, read_undo, recorded, survey

OWNER = "broker-0"
BOOT = "boot-1"


class RecordedDisk:
    """Use it as a context: its shared memory goes with it."""

    def __init__(self, folder: Path, *, run_id: str | None = None) -> None:
        self.run_id = run_id or f"{os.getpid():04x}{os.urandom(4).hex()}"[-8:]
        self.top = str(folder / "log0")
        self._data = folder
        self.full = 0
        self.begin()

    def begin(self) -> None:
        """A life of the process that uses it."""
        memory = LedgerMemory.open(self.run_id, OWNER, BOOT, str(self._data))
        assert memory is not None
        self.ledger = Ledger(memory, [self.top], self._on_full)
        self.directory = self.open()
        self.directory.make()

    def open(self) -> DiskDirectory:
        return open_disk(self.top, open_files_max=16, ledger=self.ledger)

    def _on_full(self) -> None:
        self.full += 1

    def survey(self) -> Survey:
        return survey(recorded([read_ledger(self.run_id, OWNER)]), [self.top])

    def lose_power(self, seed: int) -> Image:
        found = self.survey()
        image = draw_image(found, seed)
        make_image(found, image)
        remove_ledger(self.run_id, OWNER)
        self.begin()
        return image

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        remove_ledger(self.run_id, OWNER)


Tree = dict[str, "bytes | Tree"]


def durable_tree(found: Survey) -> Tree:
    """What would be left if nothing but stable bytes and names were."""
    return _tree(found, Path(found.tops[0]).stat().st_ino)


def _tree(found: Survey, directory: int) -> Tree:
    tree: Tree = {}
    for name, inode in found.directories[directory].durable.items():
        if inode in found.directories:
            tree[name] = _tree(found, inode)
        else:
            tree[name] = durable_bytes(found.files[inode])
    return tree


def durable_bytes(file: SeenFile) -> bytes:
    return Path(file.path).read_bytes()[: file.stable] + read_undo(file)[1]


def tree_now(path: Path) -> Tree:
    return {
        entry.name: tree_now(entry) if entry.is_dir() else entry.read_bytes()
        for entry in sorted(path.iterdir())
    }
