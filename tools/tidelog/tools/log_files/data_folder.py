"""Where things are in a cluster's data folder, and what its metadata log says."""

import re
from pathlib import Path

from msgspec import Struct

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.launch import COORDINATOR_LEDGER, broker_directories, coordinator_directory
from tidelog.node.metadata.image import MetadataImage
from tidelog.tools.log_files.metadata_replay import NAME as METADATA_NAME
from tidelog.tools.log_files.metadata_replay import read_image
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.tools.output import fail
from tidelog.tools.supervisor.disks import disk_of
from tidelog.tools.supervisor.folder import Cluster, read_cluster

CLUSTER_FILE = "cluster.json"
BROKER_FOLDER = re.compile(r"broker-([0-9]+)")


class Folder(Struct, frozen=True):
    """A cluster's data folder."""

    path: Path
    cluster: Cluster | None
    """None where cluster.json cannot be read."""
    image: MetadataImage
    """What the metadata log says, as far as it can be read."""

    @property
    def brokers(self) -> dict[int, tuple[Path, ...]]:
        """Their log directories, by id."""
        found = {}
        for entry in self.path.iterdir():
            match = BROKER_FOLDER.fullmatch(entry.name)
            directories = self._directories(int(match[1])) if match else ()
            if match and directories:
                found[int(match[1])] = directories
        return dict(sorted(found.items()))

    def _directories(self, broker: int) -> tuple[Path, ...]:
        """As the last start was told, those that are there."""
        cluster = self.cluster
        settings: dict[str, str] = {}
        if cluster is not None:
            settings = cluster.settings | cluster.broker_settings.get(str(broker), {})
        named = broker_directories(str(self.path), broker, settings)
        return tuple(one for one in map(Path, named) if one.is_dir())

    @property
    def coordinator(self) -> Path:
        return Path(coordinator_directory(str(self.path)))


def open_folder(path: Path) -> Folder:
    """Reads what the directories share."""
    try:
        cluster = read_cluster(path) if (path / CLUSTER_FILE).exists() else None
    except CannotStartError:
        cluster = None
    if (
        cluster is not None
        and cluster.disk_bytes
        and not disk_of(path, COORDINATOR_LEDGER).is_mounted
    ):
        fail(
            f"{path} has its data on disks of its own, which are mounted while the cluster runs: "
            "start it with tidelog up"
        )
    top = ReadOnlyDirectory(coordinator_directory(str(path)))
    return Folder(path, cluster, read_image(top.directory(METADATA_NAME)))


def folder_around(path: Path) -> Folder | None:
    """The data folder that a file or directory lies in, if it does in one."""
    for above in path.parents:
        if (above / CLUSTER_FILE).exists():
            return open_folder(above)
    return None
