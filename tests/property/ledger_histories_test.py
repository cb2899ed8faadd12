"""The ledger against the simulated disk: whatever is done to both, both know the same as durable.

Names, bytes, cuts, replaced and removed files, whole directories; kills in between, after which the
next life takes the ledger up; and power losses, after which both go on with what is left.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from harness.disks.memory_disk import MemoryDisk
from harness.disks.platter import Inode, Node
from harness.disks.recorded_disk import RecordedDisk, Tree, durable_tree, tree_now
from harness.suite.budgets import Histories
from tidelog.kernel.files import Directory, File
from tidelog.kernel.launch import undo_directory
from tidelog.node.runtime.disk import DiskFile

STEPS = 80

NAMES = ["a", "b", "c", "00000000000000000000.timeindex"]
FOLDERS = ["t-0", "t-1"]


class Both:
    """One operation, done to both disks."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = Random(seed)
        self.real = RecordedDisk(folder)
        self.model = MemoryDisk()
        self.open: dict[tuple[str, str], list[File]] = {}
        self.tops: list[Directory] = []
        self.reopen()
        self.model.root.sync()

    def reopen(self) -> None:
        self.tops = [self.real.directory, self.model.directory()]
        self.tops[1].make()
        self.close()

    def close(self) -> None:
        for files in self.open.values():
            if isinstance(files[0], DiskFile):
                files[0].close()
        self.open.clear()

    def place(self, folder: str) -> list[Directory]:
        return [top.directory(folder) if folder else top for top in self.tops]

    def each(self, folder: str, action: Callable[[Any], object]) -> None:
        for place in self.place(folder):
            action(place)

    def files(self, folder: str, name: str) -> list[File]:
        key = folder, name
        if key not in self.open:
            self.open[key] = [place.open(name) for place in self.place(folder)]
        return self.open[key]

    def forget(self, folder: str, *names: str) -> None:
        for key in [
            key for key in self.open if key[0] == folder and (key[1] in names or not names)
        ]:
            for file in self.open.pop(key):
                file.close()

    def step(self) -> None:
        rng = self.rng
        folder = rng.choice(["", *FOLDERS])
        if folder and not self.tops[1].directory(folder).names() and rng.random() < 0.9:
            self.each(folder, lambda place: place.make())
        if not self.tops[1].exists(folder) and folder:
            return
        action = rng.choice(
            ["append"] * 4
            + ["sync", "cut", "replace", "unlink", "rename", "names"] * 2
            + ["move", "tree", "kill"]
        )
        getattr(self, f"do_{action}")(folder, rng.choice(NAMES))

    def there(self, folder: str, name: str) -> bool:
        place = self.place(folder)[1]
        return place.exists(name) and place.size(name) is not None

    def do_append(self, folder: str, name: str) -> None:
        part = self.rng.randbytes(self.rng.choice([1, 10, 5000]))
        for file in self.files(folder, name):
            file.append([part])

    def do_sync(self, folder: str, name: str) -> None:
        self.each(folder, lambda place: place.syncable(name).sync())

    def do_cut(self, folder: str, name: str) -> None:
        files = self.files(folder, name)
        size = self.rng.randint(0, files[1].size)
        for file in files:
            file.truncate(size)

    def do_replace(self, folder: str, name: str) -> None:
        self.forget(folder, name)
        durable, content = self.rng.random() < 0.4, self.rng.randbytes(20)
        self.each(folder, lambda place: place.replace(name, content, durable=durable))

    def do_unlink(self, folder: str, name: str) -> None:
        self.forget(folder, name)
        self.each(folder, lambda place: place.unlink(name))

    def do_rename(self, folder: str, name: str) -> None:
        if self.there(folder, name):
            new = self.rng.choice([other for other in NAMES if other != name])
            self.forget(folder, name, new)
            self.each(folder, lambda place: place.rename(name, new))

    def do_names(self, folder: str, _name: str) -> None:
        self.each(folder, lambda place: place.sync())

    def do_move(self, folder: str, _name: str) -> None:
        other = self.rng.choice(["x-delete", *FOLDERS])
        if folder and not self.tops[1].exists(other):
            self.forget(folder)
            self.each(folder, lambda place: place.move(other))

    def do_tree(self, _folder: str, _name: str) -> None:
        if self.tops[1].exists("x-delete"):
            # Never half done: the ledger takes it for durable at once.
            self.each("", lambda top: (top.remove_tree("x-delete"), top.sync()))

    def do_kill(self, _folder: str, _name: str) -> None:
        self.model.kill()
        self.real.begin()
        self.reopen()

    def sync_all(self) -> None:
        for top in self.tops:
            top.sync()
            for folder in ["", *FOLDERS, "x-delete"]:
                place = top.directory(folder) if folder else top
                place.sync()
                for name in set(NAMES) & set(place.names()):
                    place.syncable(name).sync()

    def check(self) -> None:
        found = self.real.survey()
        assert durable_tree(found) == model_tree(self.model.root.names["log0"], durable=True)
        assert tree_now(Path(self.real.top)) == model_tree(
            self.model.root.names["log0"], durable=False
        )


def model_tree(node: Inode | Node, *, durable: bool) -> Tree:
    assert isinstance(node, Node)
    tree: Tree = {}
    for name, child in sorted((node.durable if durable else node.names).items()):
        if isinstance(child, Inode):
            tree[name] = bytes(child.durable if durable else child.content)
        else:
            tree[name] = model_tree(child, durable=durable)
    return tree


def test_both_disks_know_the_same_as_durable(tmp_path: Path, histories: Histories) -> None:
    histories.run(lambda seed: history(tmp_path / str(seed), seed))


def history(folder: Path, seed: int) -> None:
    folder.mkdir()
    both = Both(folder, seed)
    with both.real:
        for _ in range(STEPS):
            both.step()
            both.check()
        both.sync_all()
        both.check()
        assert kept_aside(both.real.top) == []
        both.close()


def kept_aside(top: str) -> list[str]:
    """Once all is synced, nothing is kept for a power loss to bring back."""
    return sorted(path.name for path in Path(undo_directory(top)).glob("*"))
