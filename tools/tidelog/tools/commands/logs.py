"""`tidelog logs`: the processes' structured logs, merged by time, for people or as they are."""

import heapq
import itertools
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tidelog.tools.output import (
    Command,
    Target,
    cluster_options,
    escaped,
    not_found,
)
from tidelog.tools.supervisor.ask import Link, NotRunningError
from tidelog.tools.supervisor.folder import find

_LOOK_EVERY_S = 0.1
_HEAD_FIELDS = ("time", "level", "process", "pid", "event")
_COLOURS = {"warning": "yellow", "error": "red", "critical": "red"}


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """A line of one log; what is no event (a traceback) stands at the time of the event before."""

    time: str
    process: str
    number: int
    text: str


@click.command(
    cls=Command, examples=("tidelog logs", "tidelog logs -f broker-0", "tidelog logs --json")
)
@click.argument("process", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on as new lines come, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines as they are: JSON objects.")
@cluster_options
def logs(
    target: Target, *, process: str | None, follow: bool, lines: int | None, as_json: bool
) -> None:
    """Show what the processes say: all of them by time, or one (broker-0, coordinator,
    transaction-coordinator)."""
    folder = find(target.folder) / "logs"
    if not folder.is_dir():
        folder = target.folder_of_data() / "logs"
    running = _link(target) if follow else None
    files = _chosen(folder, process)
    readers = [_Reader(path) for path in files]
    merged: Iterable[Line] = heapq.merge(*(reader.lines() for reader in readers))
    if lines is not None:
        merged = _last(merged, lines)
    for line in merged:
        _print(line, as_json=as_json)
    if follow:
        _follow(running, readers, as_json=as_json)


def _chosen(folder: Path, process: str | None) -> list[Path]:
    files = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if process is None:
        return list(files.values())
    for name in (process, f"{process}-0", f"broker-{process}", process.replace(" ", "-")):
        if name in files:
            return [files[name]]
    raise not_found("log of process", process, files, see=f"the files in {folder}")


class _Reader:
    """Reads a log on from where it stopped; a file begun anew is read from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._inode = 0
        self._time = ""
        self._numbers = itertools.count()

    def lines(self) -> Iterator[Line]:
        try:
            with self._path.open("rb") as file:
                status = self._path.stat()
                if status.st_ino != self._inode or status.st_size < self._position:
                    self._inode, self._position = status.st_ino, 0
                file.seek(self._position)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        return  # still being written
                    self._position += len(raw)
                    yield self._line(raw.decode("utf-8", "replace").rstrip("\n"))
        except FileNotFoundError:
            return

    def _line(self, text: str) -> Line:
        event = _event(text)
        self._time = str(event.get("time", self._time)) if event else self._time
        return Line(self._time, self._path.stem, next(self._numbers), text)


def _last(lines: Iterable[Line], count: int) -> list[Line]:
    return list(deque(lines, maxlen=count))


def _event(text: str) -> Mapping[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _print(line: Line, *, as_json: bool) -> None:
    event = _event(line.text)
    if as_json:
        wrapped = {"time": line.time, "process": line.process, "event": "output", "text": line.text}
        click.echo(line.text if event else json.dumps(wrapped))
        return
    if event is None:
        click.echo(f"{'':12} {line.process:<14} {escaped(line.text)}")
        return
    moment = str(event.get("time", ""))[11:23]
    fields = " ".join(f"{k}={_shown(v)}" for k, v in event.items() if k not in _HEAD_FIELDS)
    text = f"{moment} {event.get('process', ''):<14} {event.get('event', '')} {fields}".rstrip()
    click.secho(escaped(text), fg=_COLOURS.get(str(event.get("level"))))


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return json.dumps(text) if " " in text else text


def _follow(running: Link | None, readers: list[_Reader], *, as_json: bool) -> None:
    """Until Ctrl-C, or until a cluster that ran has ended."""
    while True:
        gone = running is not None and running.wait_until_gone(0)
        for line in heapq.merge(*(reader.lines() for reader in readers)):
            _print(line, as_json=as_json)
        if gone:
            return
        time.sleep(_LOOK_EVERY_S)


def _link(target: Target) -> Link | None:
    try:
        return Link.to(target.folder)
    except NotRunningError:
        return None
