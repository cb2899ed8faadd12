"""A cluster's data folder as a whole: its directories, and what each must know of the others."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import structs

from tidelog.kernel.ids import BrokerId
from tidelog.node.ipc.layout import Role
from tidelog.node.log.directory_names import key_of
from tidelog.node.log.marks import MARK_NAME, decode_mark
from tidelog.node.metadata.image import TopicView
from tidelog.node.runtime.lives import boot_id
from tidelog.tools.log_files.data_folder import (
    BROKER_FOLDER,
    CLUSTER_FILE,
    Folder,
    folder_around,
    open_folder,
)
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.index_watch import INTERVAL_USUAL
from tidelog.tools.log_files.metadata_log import verify_coordinator
from tidelog.tools.log_files.metadata_replay import NAME as METADATA_NAME
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.tools.log_files.verify_directory import (
    Around,
    TopicFacts,
    known_of,
    life_of,
    read_checkpoints,
    verify_directory,
)
from tidelog.tools.log_files.verify_log import Known, verify_log
from tidelog.tools.supervisor.ask import Link, NotRunningError, SaidNoError
from tidelog.tools.supervisor.folder import is_held
from tidelog.tools.supervisor.plan import Name
from tidelog.tools.supervisor.power import generation_of
from tidelog.wire.checkpoints import META_PROPERTIES

LOOKS_MAX = 3
"""A directory in use changes while it is read: only what is wrong each time is wrong."""
_BETWEEN_LOOKS_S = 0.05


def around(directory: Path, folder: Folder | None) -> Around:
    """What is known about a log directory from outside of it."""
    disk = ReadOnlyDirectory(str(directory))
    if folder is None:
        # On a disk of its own nobody knows of a power loss but the machine.
        mark = decode_mark(disk.read_all(MARK_NAME))
        generation = mark.disk_generation if mark is not None else 0
        return Around(boot_id=boot_id(), disk_generation=generation, in_use=disk.is_in_use())
    cluster, image = folder.cluster, folder.image
    # A name lies in the broker's own folder; below a path each broker has one.
    match = BROKER_FOLDER.fullmatch(directory.parent.name) or BROKER_FOLDER.fullmatch(
        directory.name
    )
    broker = None if match is None else image.brokers.get(BrokerId(int(match[1])))
    owner = Name(Role.COORDINATOR, 0) if match is None else Name(Role.BROKER, int(match[1]))
    return Around(
        boot_id=boot_id(),
        disk_generation=0 if cluster is None else generation_of(cluster, owner),
        in_use=_is_in_use(folder.path, disk, None if match is None else int(match[1])),
        cluster_id=None if cluster is None else cluster.cluster_id,
        node_id=None if match is None else int(match[1]),
        directory_ids=None if broker is None else tuple(broker.log_dirs),
        topics={view.name: _facts(view, folder) for view in image.topics.values()},
    )


def _is_in_use(data: Path, disk: ReadOnlyDirectory, broker: int | None) -> bool:
    """Where a supervisor lives it is asked: to try the lock could stop a broker from starting."""
    if not is_held(data):
        return disk.is_in_use()
    role, number = ("coordinator", 0) if broker is None else ("broker", broker)
    try:
        with Link.to(data) as link:
            processes = link.ask("status")["status"]["processes"]
    except (NotRunningError, SaidNoError):
        return True  # it comes or goes at this moment
    return any(
        (one["role"], one["id"]) == (role, number) and one["pid"] is not None for one in processes
    )


def _facts(topic: TopicView, folder: Folder) -> TopicFacts:
    broker_wide = {} if folder.cluster is None else folder.cluster.settings
    policy = _setting(topic.configs, broker_wide, "cleanup.policy", "delete")
    interval = _setting(topic.configs, broker_wide, "index.interval.bytes", str(INTERVAL_USUAL))
    return TopicFacts(
        topic_id=bytes(topic.id),
        compacted="compact" in policy.split(","),
        index_interval=int(interval) if interval.isdecimal() else INTERVAL_USUAL,
    )


def _setting(
    own: Mapping[str, str], broker_wide: Mapping[str, str], name: str, default: str
) -> str:
    return own.get(name, broker_wide.get(f"log.{name}", default))


# -- checks -------------------------------------------------------------------------------------


def verify_folder(path: Path, report: Report) -> None:
    """Everything a cluster has on disk."""
    folder = open_folder(path)
    if folder.cluster is None:
        report.violation(str(path / CLUSTER_FILE), "cannot be read")
    for directories in folder.brokers.values():
        for directory in directories:
            verify_log_directory(directory, report, path)
    if folder.coordinator.is_dir():
        verify_coordinator_directory(folder.coordinator, report)


def verify_log_directories(path: Path, report: Report) -> None:
    """All that are in a broker's folder."""
    for directory in log_directories_in(path):
        verify_log_directory(directory, report)


def log_directories_in(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if (one / META_PROPERTIES).is_file())


def verify_log_directory(path: Path, report: Report, cluster: Path | None = None) -> None:
    """One of a broker's; of this cluster, which it need not lie in."""

    def look(found: Report) -> bool:
        folder = folder_around(path) if cluster is None else open_folder(cluster)
        outside = around(path, folder)
        verify_directory(ReadOnlyDirectory(str(path)), outside, found)
        return outside.in_use

    _look_again_while_in_use(look, report)


def verify_coordinator_directory(path: Path, report: Report) -> None:
    """The metadata log and its snapshots."""

    def look(found: Report) -> bool:
        outside = around(path, folder_around(path))
        verify_coordinator(ReadOnlyDirectory(str(path)), outside, found)
        return outside.in_use

    _look_again_while_in_use(look, report)


def verify_partition(path: Path, report: Report) -> None:
    """One partition's directory: by what its log directory says of it, where it lies in one."""

    def look(found: Report) -> bool:
        above = ReadOnlyDirectory(str(path.parent))
        key = key_of(path.name)
        if key is None or not above.exists(MARK_NAME):
            verify_log(ReadOnlyDirectory(str(path)), Known(), found)
            return False
        outside = around(path.parent, folder_around(path))
        mark = decode_mark(above.read_all(MARK_NAME))
        offsets = read_checkpoints(above, Report())
        known = known_of(key, life_of(above, outside), offsets, mark, outside)
        if path.name == METADATA_NAME:
            known = structs.replace(known, metadata=True)
        verify_log(ReadOnlyDirectory(str(path)), known, found)
        return outside.in_use

    _look_again_while_in_use(look, report)


def _look_again_while_in_use(look: Callable[[Report], bool], report: Report) -> None:
    first = Report(report.progress)
    in_use = _look(look, first)
    lasting = first.findings
    for _ in range(LOOKS_MAX - 1):
        if not (in_use and lasting):
            break
        time.sleep(_BETWEEN_LOOKS_S)
        again = Report()
        _look(look, again)
        lasting = [one for one in lasting if one in again.findings]
    for finding in lasting:
        report.take(finding)
    report.looked.add(first.looked)


def _look(look: Callable[[Report], bool], report: Report) -> bool:
    """A file may go between its name and its opening: then this look is not worth anything."""
    for _ in range(LOOKS_MAX):
        try:
            return look(report)
        except FileNotFoundError as error:
            report.clear()
            missing = error
            time.sleep(_BETWEEN_LOOKS_S)
    report.violation(str(missing.filename), "goes away whenever it is looked at")
    return True
