"""What `tidelog why` knows: the cluster's folder, its supervisor, the board, the logs, its brokers.

All of it is read without disturbing anyone, and most of it is there when the cluster is down.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from tidelog.clients.admin.describe import failed_directories, replica_sizes
from tidelog.clients.cluster_view import refresh
from tidelog.clients.failures import ClientError
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import s
from tidelog.tools.chaos.sick_disks import sick_in
from tidelog.tools.connecting import connected
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.tools.output import CliError, Target
from tidelog.tools.reasons import Known
from tidelog.tools.supervisor.ask import Link, NotRunningError, SaidNoError
from tidelog.tools.supervisor.folder import is_held, run_in
from tidelog.tools.supervisor.ports import HOST
from tidelog.tools.supervisor.runs import Run
from tidelog.tools.timeline import gather
from tidelog.tools.transaction_look import see_readers
from tidelog.tools.transaction_reasons import Readers

_ANSWER_NS = s(2)
"""Sizes are a courtesy: who does not answer at once is not waited for."""

Row = dict[str, Any]
Sizes = dict[tuple[str, int, int], int]
Directories = dict[int, tuple[str, ...]]


def look(target: Target, places: Sequence[TopicPartition] = ()) -> Known:
    """Everything at this moment; how large the replicas of these partitions are, as well."""
    folder = target.folder_of_data()
    run = run_in(folder) if is_held(folder) else None
    brokers = None if run is None else _brokers(target)
    opened = open_folder(folder)
    servers = _running(brokers or [])
    sizes, failed = _told(servers, places)
    return Known(
        image=opened.image,
        states=None if brokers is None else {row["id"]: row["state"] for row in brokers},
        events=gather(run.run_id if run else None, folder / "logs"),
        sizes=sizes,
        failed=failed,
        static={} if opened.cluster is None else opened.cluster.settings,
        servers=servers,
        sick=_sick(run),
    )


def look_at_readers(servers: str, place: TopicPartition) -> Readers | None:
    """How far a partition's readers get, and what is open there; None where nobody tells soon."""
    if not servers:
        return None
    with contextlib.suppress(ClientError, CliError), connected(Target(bootstrap=servers)) as client:
        client.run(refresh(client.view, [place[0]]), _ANSWER_NS)
        return see_readers(client, place, _ANSWER_NS)
    return None


def _brokers(target: Target) -> list[Row] | None:
    """Their rows of the status; None where the cluster is just ending."""
    try:
        with Link.to(target.folder) as link:
            rows = link.ask("status")["status"]["processes"]
    except (NotRunningError, SaidNoError):
        return None
    return [row for row in rows if row["role"] == "broker"]


def _sick(run: Run | None) -> dict[int, list[str]]:
    """What was done to disks on purpose, by broker."""
    found: dict[int, list[str]] = {}
    for one in [] if run is None else sick_in(run.run_id, run.data_dir):
        found.setdefault(one.broker, []).append(one.sentence)
    return found


def _running(brokers: Sequence[Row]) -> str:
    """Who may be asked, as `--bootstrap` has it: nobody waits for those that are not there."""
    return ",".join(f"{HOST}:{row['port']}" for row in brokers if row["state"] == "running")


def _told(servers: str, places: Sequence[TopicPartition]) -> tuple[Sizes, Directories]:
    """What brokers tell of their logs and directories; nothing where none answers."""
    sizes: Sizes = {}
    failed: Directories = {}
    if not servers:
        return sizes, failed
    target = Target(bootstrap=servers)
    with contextlib.suppress(ClientError, CliError), connected(target) as client:
        client.run(refresh(client.view, [name for name, _ in places]), _ANSWER_NS)
        failed = client.run(failed_directories(client.view.brokers), _ANSWER_NS)
        there = [one for one in places if one[1] < client.view.partition_count(one[0])]
        found = client.run(replica_sizes(client.view, there), _ANSWER_NS)
        sizes = {(name, at, broker): held for ((name, at), broker), held in found.items()}
    return sizes, failed
