"""The ledger held against a trace: neither may say more of any file than the other.

But for one that was killed: a sync that the kernel had done may not be told in its ledger yet.
"""

from pathlib import Path

from harness.disks.trace_replay import Replay, Traced, TracedDirectory
from tidelog.kernel.launch import undo_directory
from tidelog.tools.chaos.survey import NO_STORAGE, SeenDirectory, Survey


def differences(replay: Replay, found: Survey, *, killed: bool = False) -> list[str]:
    """One sentence for each thing that the two do not agree on."""
    complaints: list[str] = []
    for top in found.tops:
        inodes = _inodes(replay, top)
        complaints += _of_files(replay, found, top, killed=killed)
        complaints += _of_names(replay, found, top, inodes, killed=killed)
    return complaints


def _inodes(replay: Replay, top: str) -> dict[Traced, int]:
    """By the names they have now, in the directories or beside them."""
    known: dict[Traced, int] = {}
    for place in (undo_directory(top), top):
        if replay.at(place) is None:
            continue
        found: list[tuple[str, Traced]] = [*replay.directories(place)]
        found += replay.files(place)
        known |= {traced: Path(path).stat().st_ino for path, traced in found}
    return known


def _of_files(replay: Replay, found: Survey, top: str, *, killed: bool) -> list[str]:
    complaints: list[str] = []
    said = {file.path: file for file in found.files.values()}
    for path, traced in replay.files(top):
        if Path(path).name in NO_STORAGE:
            continue
        file = said.pop(path, None)
        if file is None or file.size != traced.size:
            complaints.append(f"{path}: the trace leaves {traced.size} bytes, there is {file}")
        elif file.stable != traced.stable and not (killed and file.stable < traced.stable):
            complaints.append(
                f"{path}: of {file.size} bytes {traced.stable} are stable, "
                f"the ledger says {file.stable}"
            )
    here = f"{top}/"
    return complaints + [f"{path}: not in the trace" for path in said if path.startswith(here)]


def _of_names(
    replay: Replay, found: Survey, top: str, inodes: dict[Traced, int], *, killed: bool
) -> list[str]:
    said = {seen.path: seen for seen in found.directories.values()}
    return [
        complaint
        for path, traced in replay.directories(top)
        for complaint in _of_directory(traced, said[path], inodes, killed=killed)
    ]


def _of_directory(
    traced: TracedDirectory, seen: SeenDirectory, inodes: dict[Traced, int], *, killed: bool
) -> list[str]:
    wanted = {name: inodes.get(target, -1) for name, target in traced.durable.items()}
    for name in [name for name, inode in wanted.items() if inode < 0]:
        # What nobody can bring back counts as gone for good.
        del wanted[name]
        if name in seen.now:
            wanted[name] = seen.now[name]
    return [
        f"{seen.path}/{name}: on stable storage it is {wanted.get(name)}, the ledger says "
        f"{seen.durable.get(name)}, now it is {seen.now.get(name)}"
        for name in sorted({*wanted, *seen.durable} - NO_STORAGE)
        if seen.durable.get(name) != wanted.get(name)
        and not (killed and wanted.get(name) == seen.now.get(name))
    ]
