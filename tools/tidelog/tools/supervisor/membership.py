"""Which brokers belong to a cluster: one more, or one less, written down before anything is done.

A new broker gets an id that none has had: what clients, logs and plans say of a removed one is
never taken for its. Only when all ids were given out, those of removed brokers are given again.
"""

from collections.abc import Iterator

from msgspec import structs

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.limits import BROKERS_MAX
from tidelog.tools.supervisor.folder import Cluster, DataFolder
from tidelog.tools.supervisor.ports import PortKeeper, bootstrap
from tidelog.tools.supervisor.runs import Run
from tidelog.tools.supervisor.sources import PORT_MAX


def new_ids(cluster: Cluster) -> Iterator[int]:
    """In the order they are given."""
    yield from range(len(cluster.ports), BROKERS_MAX)
    yield from (broker for broker, port in enumerate(cluster.ports) if not port)


def add(folder: DataFolder, ports: PortKeeper, run: Run) -> tuple[int, Run]:
    """The new broker's id, and the run that has it."""
    cluster = folder.cluster
    broker = next(new_ids(cluster), None)
    if broker is None:
        raise CannotStartError(f"a cluster has at most {BROKERS_MAX} brokers: start another one")
    wanted = cluster.base_port and cluster.base_port + broker
    if wanted > PORT_MAX:
        raise CannotStartError(
            f"its port would be {wanted}, over {PORT_MAX}: choose a lower --base-port"
        )
    port = ports.keep(wanted)
    before = cluster.ports
    cluster.ports = [*before, *[0] * (broker + 1 - len(before))]
    cluster.ports[broker] = port
    try:
        return broker, _saved(folder, run)
    except CannotStartError:
        cluster.ports = before
        ports.let_go(port)
        raise


def remove(folder: DataFolder, ports: PortKeeper, run: Run, broker: int) -> Run:
    """The run without it. Its process has ended; its port is for others from now on."""
    cluster = folder.cluster
    before = cluster.ports
    cluster.ports = [0 if one == broker else port for one, port in enumerate(before)]
    try:
        after = _saved(folder, run)
    except CannotStartError:
        cluster.ports = before
        raise
    ports.let_go(before[broker])
    return after


def _saved(folder: DataFolder, run: Run) -> Run:
    after = structs.replace(run, bootstrap=bootstrap(folder.cluster.ports))
    folder.save_cluster()
    folder.save_run(after)
    return after
