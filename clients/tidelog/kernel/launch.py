"""What the supervisor tells a process it forks: all that it needs, nothing it must guess."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.kernel.ids import BrokerId, Incarnation


@dataclass(frozen=True, slots=True)
class Launch:
    """Common to all children."""

    run_id: str
    """Part of every shared-memory name of this run."""
    cluster_id: str
    """Kafka's text form, 22 characters."""
    supervisor_pid: int
    incarnation: Incarnation
    data_dir: str
    """The cluster's directory: cluster.json, coordinator/, broker-N/log0/, logs/."""
    runtime_dir: str
    """0700; holds supervisor.sock and the ipc sockets."""
    boot_id: str
    disk_generation: int
    """Raised by each simulated power loss: with the boot id it says whether the cache survived."""
    settings: Mapping[str, str]
    """Kafka's and our keys that apply to this process, already checked."""
    ready_fd: int
    """Write `ready\\n`, or `failed: SENTENCE\\n`, once; then close. A coordinator that stands by
    writes `standby\\n` before that, and `ready\\n` when it leads."""
    board_slot: int
    """This process's slot on the board."""


@dataclass(frozen=True, slots=True)
class BrokerLaunch(Launch):
    broker_id: BrokerId
    host: str
    port: int
    """The supervisor holds it bound, not listening; the broker binds it again and listens."""


@dataclass(frozen=True, slots=True)
class CoordinatorLaunch(Launch):
    seat: int = 0
    """Which of the coordinators it is; whoever has the lock leads."""
    seats: int = 1
    standby: bool = False
    """Another one lives: follow first, and lead when that is over."""


MEMORY_FOLDER = "/dev/shm"  # noqa: S108 -- where Linux keeps POSIX shared memory


def board_name(run_id: str) -> str:
    """The shared-memory name of a run's board."""
    return f"/tidelog-{run_id}-board"


def coordinator_endpoint(runtime_dir: str) -> str:
    """Where the coordinator's ROUTER listens."""
    return f"ipc://{runtime_dir}/coordinator"


def transactions_endpoint(runtime_dir: str) -> str:
    """Where the transaction coordinator's ROUTER listens."""
    return f"ipc://{runtime_dir}/transactions"


def broker_endpoint(runtime_dir: str, broker: BrokerId) -> str:
    """Where a broker hears the others."""
    return f"ipc://{runtime_dir}/broker-{broker}"


def broker_short_endpoint(runtime_dir: str, broker: BrokerId) -> str:
    """Where a broker hears small messages of the others: a datagram socket's path."""
    return f"{runtime_dir}/short-{broker}"


def ring_name(
    run_id: str, broker: BrokerId, incarnation: Incarnation | None, number: int | None
) -> str:
    """The shared-memory name of a broker's ring; without a number the beginning of all such."""
    life = "" if incarnation is None else f"{incarnation}-"
    return f"/tidelog-{run_id}-ring-{broker}-{life}{'' if number is None else number}"


def ledger_name(run_id: str, owner: str, part: int | None) -> str:
    """The shared-memory name of a part of a process's ledger; without a number, and an owner, the
    beginning of all such."""
    return f"/tidelog-{run_id}-ledger-{owner}{'' if part is None else f'-{part}'}"


def faults_name(run_id: str, broker_id: int | None) -> str:
    """The shared-memory name of a broker's disk faults; there is none before the first one. Without
    a broker the beginning of all such."""
    return f"/tidelog-{run_id}-faults-{'' if broker_id is None else broker_id}"


def broker_ledger(broker_id: int) -> str:
    """Whose ledger a broker's is."""
    return f"broker-{broker_id}"


COORDINATOR_LEDGER = "coordinator"


def ledgers_directory(data_dir: str) -> str:
    """Where ledgers are between two runs."""
    return f"{data_dir}/ledgers"


def undo_directory(directory: str) -> str:
    """Beside a directory of logs: what a power loss would bring back of it."""
    return f"{directory}.undo"


def supervisor_socket(runtime_dir: str) -> str:
    """The supervisor's Unix stream socket: JSON lines."""
    return f"{runtime_dir}/supervisor.sock"


def broker_directory(data_dir: str, broker_id: int) -> str:
    """Where a broker keeps its logs unless it is told otherwise."""
    return f"{data_dir}/broker-{broker_id}/log0"


def broker_directories(
    data_dir: str, broker_id: int, settings: Mapping[str, str]
) -> tuple[str, ...]:
    """As `log.dirs` says, else `log.dir`: a name is of a folder in the broker's own one, an
    absolute path of one where each broker has its own."""
    given = settings.get("log.dirs") or settings.get("log.dir") or ""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        return (broker_directory(data_dir, broker_id),)
    own = f"{data_dir}/broker-{broker_id}"
    return tuple(
        f"{name.rstrip('/')}/broker-{broker_id}" if name.startswith("/") else f"{own}/{name}"
        for name in names
    )


def coordinator_directory(data_dir: str) -> str:
    return f"{data_dir}/coordinator"


def log_file(data_dir: str, role: str, process_id: int) -> str:
    """Where a process writes its structured log, one JSON object a line."""
    return f"{data_dir}/logs/{role}-{process_id}.log"
