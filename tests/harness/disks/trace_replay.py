"""What is on stable storage, computed from the system calls of a run alone, as strace wrote them.

It knows nothing of the ledger: files and directories come into being, are written, renamed, synced
and removed as the kernel was asked. A sync covers what was there when it was submitted; so the two
halves of a call that others interrupted are told apart.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

TRACED = (
    "openat,open,creat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,rename,renameat,"
    "renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,fsync,fdatasync"
)
_LINE = re.compile(
    r"^(?P<pid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<call>\w+)\()(?P<rest>.*)$"
)
_UNFINISHED = " <unfinished ...>"
_KILLED = re.compile(r"^(?P<pid>\d+) +\+\+\+ (?:killed|exited) ")
_RESULT = re.compile(r"\) += (?P<result>-?\d+)(?:<(?P<path>[^>]*)>)?")
_DESCRIPTOR = re.compile(r"^(?P<number>\d+)<(?P<path>[^>]*)>")
_PATH = re.compile(r'(?:<(?P<folder>[^>]*)>, )?"(?P<name>(?:[^"\\]|\\.)*)"')
"""A path, and where it begins, if it is a relative one."""
_OF_SELF = re.compile(r"^/proc/self/fd/(\d+)")
_DELETED = " (deleted)"


@dataclass(eq=False, slots=True)
class TracedFile:
    """One inode; its first `stable` bytes are on stable storage as they are."""

    size: int = 0
    stable: int = 0
    under_way: "list[Submitted]" = field(default_factory=list)

    def changed_from(self, position: int) -> None:
        self.stable = min(self.stable, position)
        for sync in self.under_way:
            sync.size = min(sync.size, position)


@dataclass(eq=False, slots=True)
class TracedDirectory:
    """One directory: its names now, and on stable storage."""

    now: "dict[str, Traced]" = field(default_factory=dict)
    durable: "dict[str, Traced]" = field(default_factory=dict)


Traced = TracedFile | TracedDirectory


@dataclass(eq=False, slots=True)
class Submitted:
    """A sync that has not returned."""

    of: Traced
    size: int = 0
    names: "dict[str, Traced]" = field(default_factory=dict)


class Replay:
    """The calls under one folder, which did not exist before the first of them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.root = TracedDirectory()
        self.syncs = 0
        self._halves: dict[int, tuple[str, str]] = {}
        self._submitted: dict[int, Submitted] = {}
        self._descriptors: dict[tuple[int, str], str] = {}

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            if (match := _LINE.match(line)) is not None:
                self._line(int(match["pid"]), match["call"], match["rest"])
            elif (match := _KILLED.match(line)) is not None:
                self._interrupted(int(match["pid"]))

    def _line(self, pid: int, call: str | None, rest: str) -> None:
        if call is None:
            call, before = self._halves.pop(pid, ("", ""))
            rest = before + rest
        else:
            self._begin(pid, call, rest)
        if rest.endswith(_UNFINISHED):
            self._halves[pid] = (call, rest.removesuffix(_UNFINISHED))
            return
        found = list(_RESULT.finditer(rest))
        if not found:
            self._halves[pid] = (call, rest)  # `= ?`: it was killed meanwhile
        else:
            result = found[-1]
            self._end(pid, call, rest[: result.start()], int(result["result"]), result["path"])

    def _interrupted(self, pid: int) -> None:
        """Of a call that a kill cut short only the file system knows whether it was done."""
        call, text = self._halves.pop(pid, ("", ""))
        self._synced(self._submitted.pop(pid, None), done=False)
        paths = [_path(one) for one in _PATH.finditer(text)]
        if "write" in call or "truncate" in call:
            self._wrote_or_cut(text)
        elif paths and self._was_done(call, text, paths):
            self._done(pid, call, text, 0, paths[-1])

    def _was_done(self, call: str, text: str, paths: list[str]) -> bool:
        there = [Path(path).exists() for path in paths]
        if call.startswith("open"):
            return there[0] and "O_CREAT" in text
        if call.startswith(("unlink", "rmdir", "rename")):
            return not there[0]
        return call.startswith(("mkdir", "link")) and there[-1]

    def _wrote_or_cut(self, text: str) -> None:
        match = _DESCRIPTOR.match(text)
        file = None if match is None else self.at(match["path"])
        if match is not None and isinstance(file, TracedFile) and Path(match["path"]).exists():
            size = Path(match["path"]).stat().st_size
            file.changed_from(min(size, file.size))
            file.size = size

    def _begin(self, pid: int, call: str, rest: str) -> None:
        if call not in {"fsync", "fdatasync"}:
            return
        of = self._of_descriptor(rest)
        if isinstance(of, TracedFile):
            self._submitted[pid] = sync = Submitted(of, of.size)
            of.under_way.append(sync)
        elif of is not None:
            self._submitted[pid] = Submitted(of, names=dict(of.now))

    def _end(self, pid: int, call: str, text: str, result: int, path: str | None) -> None:
        if call in {"fsync", "fdatasync"}:
            self._synced(self._submitted.pop(pid, None), done=result == 0)
        elif result >= 0:
            self._done(pid, call, text, result, path)

    def _done(self, pid: int, call: str, text: str, result: int, path: str | None) -> None:
        if call in {"openat", "open", "creat"}:
            self._descriptors[pid, str(result)] = path or ""
            self._opened(path or "", text)
        elif call in {"write", "writev", "pwrite64", "pwritev", "pwritev2"}:
            self._wrote(call, text, result)
        elif call in {"ftruncate", "truncate"}:
            self._cut(text)
        else:
            self._named(pid, call, [_path(one) for one in _PATH.finditer(text)])

    def _synced(self, sync: Submitted | None, *, done: bool) -> None:
        if sync is None:
            return
        self.syncs += done
        if isinstance(sync.of, TracedFile):
            sync.of.under_way.remove(sync)
            sync.of.stable = max(sync.of.stable, sync.size) if done else sync.of.stable
        elif done:
            sync.of.durable = sync.names

    def _opened(self, path: str, text: str) -> None:
        directory, name = self._place(path)
        if directory is None or "O_DIRECTORY" in text:
            return
        if "O_CREAT" in text and name not in directory.now:
            directory.now[name] = TracedFile()
        there = directory.now.get(name)
        if "O_TRUNC" in text and isinstance(there, TracedFile):
            there.changed_from(0)
            there.size = 0

    def _wrote(self, call: str, text: str, result: int) -> None:
        file = self._of_descriptor(text)
        if isinstance(file, TracedFile):
            # Streams are written once, from the beginning on.
            position = file.size
            if call not in {"write", "writev"}:
                position = int(text.split(", ")[-2 if call == "pwritev2" else -1])
            file.changed_from(position)
            file.size = max(file.size, position + result)

    def _cut(self, text: str) -> None:
        file = self._of_descriptor(text)
        if isinstance(file, TracedFile):
            size = int(text.rpartition(", ")[2])
            file.changed_from(size)
            file.size = size

    def _named(self, pid: int, call: str, paths: list[str]) -> None:
        full = [
            _OF_SELF.sub(lambda found: self._descriptors.get((pid, found[1]), ""), path)
            for path in paths
        ]
        directory, name = self._place(full[0])
        if directory is None:
            return
        if call.startswith("mkdir"):
            directory.now[name] = TracedDirectory()
        elif call.startswith(("unlink", "rmdir")):
            directory.now.pop(name, None)
        else:
            to, new = self._place(full[1])
            assert to is not None, full
            to.now[new] = directory.now[name]
            if call.startswith("rename"):
                del directory.now[name]

    def _of_descriptor(self, text: str) -> Traced | None:
        match = _DESCRIPTOR.match(text)
        return None if match is None else self.at(match["path"])

    def _place(self, path: str) -> tuple[TracedDirectory | None, str]:
        parent = self.at(str(PurePosixPath(path).parent))
        inside = parent if isinstance(parent, TracedDirectory) else None
        return inside, PurePosixPath(path).name

    def at(self, path: str) -> Traced | None:
        """What has that name now; None outside the folder, and of what was removed."""
        if not (path == self.folder or path.startswith(f"{self.folder}/")) or _DELETED in path:
            return None
        found: Traced | None = self.root
        for part in PurePosixPath(path).relative_to(self.folder).parts:
            found = found.now.get(part) if isinstance(found, TracedDirectory) else None
        return found

    def files(self, path: str) -> Iterator[tuple[str, TracedFile]]:
        """All below a path, by their names of now."""
        directory = self.at(path)
        assert isinstance(directory, TracedDirectory), path
        for name, child in sorted(directory.now.items()):
            if isinstance(child, TracedFile):
                yield f"{path}/{name}", child
            else:
                yield from self.files(f"{path}/{name}")

    def directories(self, path: str) -> Iterator[tuple[str, TracedDirectory]]:
        directory = self.at(path)
        assert isinstance(directory, TracedDirectory), path
        yield path, directory
        for name, child in sorted(directory.now.items()):
            if isinstance(child, TracedDirectory):
                yield from self.directories(f"{path}/{name}")


def _path(found: re.Match[str]) -> str:
    name = found["name"].encode().decode("unicode_escape")
    return str(PurePosixPath(found["folder"] or "/", name))
