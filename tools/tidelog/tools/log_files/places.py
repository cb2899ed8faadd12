"""From what a user typed, a path or TOPIC:PARTITION, to a file or a directory."""

from enum import Enum
from pathlib import Path

import click
from msgspec import Struct

from tidelog.kernel.ids import NO_LEADER
from tidelog.node.log.directory_names import key_of
from tidelog.node.log.marks import MARK_NAME
from tidelog.tools.log_files.cluster_folder import log_directories_in
from tidelog.tools.log_files.data_folder import CLUSTER_FILE, Folder, open_folder
from tidelog.tools.log_files.kinds import METADATA_TOPIC, FileKind, kind_of
from tidelog.tools.log_files.metadata_replay import NAME as METADATA_NAME
from tidelog.tools.output import NOT_FOUND, Target, fail, nearest, not_found, note
from tidelog.wire.checkpoints import META_PROPERTIES


class PlaceKind(Enum):
    """What a path is."""

    FILE = "file"
    PARTITION = "partition"
    LOG_DIRECTORY = "log directory"
    LOG_DIRECTORIES = "log directories"
    COORDINATOR = "coordinator"
    CLUSTER = "cluster"


class Place(Struct, frozen=True):
    """Something that can be read."""

    kind: PlaceKind
    path: Path


def resolve(text: str | None, target: Target, broker: int | None = None) -> Place:
    """The command ends where there is no such thing. Without a text: the whole cluster."""
    if text is None:
        return Place(PlaceKind.CLUSTER, _data_folder(target))
    path = Path(text)
    if "/" in text or path.exists():
        return place_of(path)
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"{text!r}: must be an existing path, or TOPIC:PARTITION")
    return _replica(topic, int(number), open_folder(_data_folder(target)), broker)


def place_of(path: Path) -> Place:
    """What a path is, by what is in it."""
    if path.is_file():
        return Place(PlaceKind.FILE, path)
    if not path.is_dir():
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        fail(f"there is nothing at {str(path)!r}{nearest(path.name, siblings)}", NOT_FOUND)
    names = {entry.name for entry in path.iterdir()}
    kind = _kind_of_directory(path, names)
    if kind is None:
        fail(
            f"{str(path)!r} holds no log: name a cluster's, a broker's or a partition's directory",
            NOT_FOUND,
        )
    inside = log_directories_in(path) if kind is PlaceKind.LOG_DIRECTORIES else []
    return place_of(inside[0]) if len(inside) == 1 else Place(kind, path)


def _kind_of_directory(path: Path, names: set[str]) -> PlaceKind | None:
    if CLUSTER_FILE in names:
        return PlaceKind.CLUSTER
    if METADATA_NAME in names and META_PROPERTIES not in names:
        return PlaceKind.COORDINATOR
    if {META_PROPERTIES, MARK_NAME} & names:
        return PlaceKind.LOG_DIRECTORY
    if log_directories_in(path):
        return PlaceKind.LOG_DIRECTORIES
    # Last, for a broker's folder is named like one.
    is_partition = any(kind_of(name) is FileKind.SEGMENT for name in names)
    return PlaceKind.PARTITION if is_partition or key_of(path.resolve().name) else None


def _data_folder(target: Target) -> Path:
    return target.folder_of_data()


def _replica(topic: str, number: int, folder: Folder, broker: int | None) -> Place:
    name = f"{topic}-{number}"
    if topic == METADATA_TOPIC:
        return Place(PlaceKind.PARTITION, folder.coordinator / name)
    having = {
        broker_id: directory / name
        for broker_id, directories in folder.brokers.items()
        for directory in directories
        if (directory / name).is_dir()
    }
    if broker is not None and broker not in having:
        who = f"; choose of {', '.join(map(str, having))}" if having else ""
        fail(f"broker {broker} has no files of {topic}:{number}{who}", NOT_FOUND)
    if not having:
        _refuse_missing(topic, number, folder)
    chosen = broker if broker is not None else _leader(topic, number, folder, having)
    if broker is None and len(having) > 1:
        note(f"{name} as broker {chosen} has it; --broker chooses of {', '.join(map(str, having))}")
    return Place(PlaceKind.PARTITION, having[chosen])


def _refuse_missing(topic: str, number: int, folder: Folder) -> None:
    view = folder.image.names.get(topic)
    if view is None:
        raise not_found("topic", topic, folder.image.names, see=f"tidelog log dump {folder.path}")
    if number >= len(view.partitions):
        last = len(view.partitions) - 1
        fail(f"topic {topic!r} has no partition {number}: its last is {last}", NOT_FOUND)
    fail(f"nothing was written to {topic}:{number} yet", NOT_FOUND)


def _leader(topic: str, number: int, folder: Folder, having: dict[int, Path]) -> int:
    view = folder.image.names.get(topic)
    leader = NO_LEADER
    if view is not None and number < len(view.partitions):
        leader = view.partitions[number].leader
    return int(leader) if leader in having else min(having)
