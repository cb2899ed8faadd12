"""Power losses, as far as the supervisor has a part in them: who is to know that one was."""

from collections.abc import Sequence

from tidelog.node.ipc.layout import Role
from tidelog.tools.supervisor.folder import Cluster, DataFolder
from tidelog.tools.supervisor.plan import Name


def generation_of(cluster: Cluster, name: Name) -> int:
    """The disk's generation that a process is told: one more after each power loss of it."""
    return cluster.disk_generation + cluster.power_losses.get(files_of(name), 0)


def note_losses(folder: DataFolder, names: Sequence[Name]) -> None:
    """Before they are killed; CannotStartError where it cannot be written down. Who starts after a
    loss that did not come about only reads more than it would have to."""
    losses = folder.cluster.power_losses
    before = dict(losses)
    for key in {files_of(name) for name in names}:
        losses[key] = losses.get(key, 0) + 1
    try:
        folder.save_cluster()
    except BaseException:
        folder.cluster.power_losses = before
        raise


def files_of(name: Name) -> str:
    """What its ledger is called, and its disk; coordinators share their files."""
    return f"broker-{name.process_id}" if name.role is Role.BROKER else name.role.name.lower()
