"""`tidelog broker add` and `remove`: clusters that grow and shrink while they run."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import click

from tidelog.kernel.instant import s
from tidelog.kernel.launch import broker_directories, broker_ledger
from tidelog.tools.commands.cluster import VERSION, link_to
from tidelog.tools.output import (
    NOT_FOUND,
    CliError,
    Command,
    Target,
    cluster_options,
    counted,
    emit_json,
    fail,
    json_option,
    note,
    progress_bar,
)
from tidelog.tools.supervisor.ask import Link
from tidelog.tools.supervisor.folder import read_cluster

_RUNNING = "running"


@click.command(cls=Command, examples=("tidelog broker add", "tidelog broker add --json"))
@cluster_options
@json_option
def add(target: Target, *, as_json: bool) -> None:
    """Start one more broker, with the next id.

    Returns when it takes clients. It stays with the cluster, and topics made from now on may be
    placed on it. Internal topics get more replicas, up to three, as there are brokers for them;
    where that fails, the broker is there all the same, and the reason is told.
    """
    with link_to(target) as link:
        answer = link.ask("add")
        if not as_json:
            click.echo(f"broker {answer['id']} added (pid {answer['pid']})")
        raised = _raise_internal(target, link)
    if as_json:
        row = {"role": "broker", "id": answer["id"], "pid": answer["pid"], "did": "add"}
        emit_json({"version": VERSION, "processes": [row], "raised": raised})
    elif raised:
        click.echo(f"{counted(raised, 'partition')} of internal topics have more replicas")


def _raise_internal(target: Target, link: Link) -> int | None:
    """How many partitions have more replicas; None where that failed, after a note of the reason.

    The broker was added by then, so the command has not failed.
    """
    from tidelog.clients.failures import ClientError  # noqa: PLC0415 -- others need no client
    from tidelog.tools.connecting import connected  # noqa: PLC0415 -- as above
    from tidelog.tools.moving import Moves  # noqa: PLC0415 -- as above
    from tidelog.wire.errors import Rejected  # noqa: PLC0415 -- as above

    brokers = [row["id"] for row in _brokers(link) if row["state"] == _RUNNING]
    try:
        with connected(target, first_answer_ns=s(_FIRST_ANSWER_S)) as client:
            return Moves(client, _PATIENCE_S).raise_internal(brokers)
    except (ClientError, CliError, Rejected) as error:
        note(
            f"internal topics may have fewer replicas than there are brokers for: {error}; to give "
            "them more later, see tidelog partition reassign plan --help"
        )
        return None


_FIRST_ANSWER_S = 5
_PATIENCE_S = 3_600.0


@click.command(cls=Command, examples=("tidelog broker remove 2", "tidelog broker remove 2 --json"))
@click.argument("broker_id", metavar="ID", type=click.IntRange(0))
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=_PATIENCE_S,
    show_default=True,
    metavar="S",
    help="How long to wait for one more partition to have moved, each time.",
)
@cluster_options
@json_option
def remove(target: Target, *, broker_id: int, timeout: float, as_json: bool) -> None:
    """Take a broker out of the cluster, for ever.

    Its replicas are moved to the others first, evenly and to other racks; internal topics have one
    less where no other is left. Then it is stopped and forgotten, and its port and its folder are
    gone. Its id is not given again. When this is interrupted, ask again: it goes on.
    """
    from tidelog.tools.connecting import connected  # noqa: PLC0415 -- others need no client

    with link_to(target) as link:
        stay = _who_stays(link, broker_id)
        with connected(target) as client:
            moved = _move_away(client, broker_id, stay, timeout)
        if _row(link, broker_id)["pid"] is not None:
            link.ask("stop", role="broker", id=broker_id)
        with connected(target) as client:
            # Something may have been made on it in its last moment.
            moved += _move_away(client, broker_id, stay, timeout)
            _forget(client, broker_id)
        link.ask("remove", role="broker", id=broker_id)
        _remove_folders(Path(link.run.data_dir), broker_id)
    if as_json:
        emit_json({"version": VERSION, "broker": broker_id, "moved": moved, "brokers": stay})
    else:
        click.echo(f"broker {broker_id} removed: {counted(moved, 'partition')} moved to others")


def _who_stays(link: Link, broker_id: int) -> list[int]:
    """Where its replicas may go; the command ends where it cannot be removed."""
    rows = _brokers(link)
    ids = [row["id"] for row in rows]
    if broker_id not in ids:
        named = ", ".join(map(str, ids))
        fail(f"there is no broker {broker_id}: the brokers are {named}", NOT_FOUND)
    if len(ids) == 1:
        fail(f"broker {broker_id} is the last one: end the cluster with tidelog down")
    for row in rows:
        if row["state"] != _RUNNING and row["id"] != broker_id:
            fail(f"broker {row['id']} is {row['state']}: all others must run, see tidelog status")
    return [one for one in ids if one != broker_id]


def _remove_folders(data: Path, broker_id: int) -> None:
    """Nothing is in them any more that is not elsewhere."""
    from tidelog.tools.supervisor.disks import discard  # noqa: PLC0415 -- `start` needs none of it

    cluster = read_cluster(data)
    settings = {**cluster.settings, **cluster.broker_settings.get(str(broker_id), {})}
    logs = broker_directories(str(data), broker_id, settings)
    discard(data, broker_ledger(broker_id))
    for folder in (*logs, str(data / f"broker-{broker_id}")):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _brokers(link: Link) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = link.ask("status")["status"]["processes"]
    return [row for row in rows if row["role"] == "broker"]


def _row(link: Link, broker_id: int) -> dict[str, Any]:
    return next(row for row in _brokers(link) if row["id"] == broker_id)


def _move_away(client: Any, broker_id: int, stay: list[int], timeout_s: float) -> int:  # noqa: ANN401 -- imported only where it is used
    from tidelog.tools.moving import Moves  # noqa: PLC0415 -- others need no client

    moves = Moves(client, timeout_s)
    held = moves.count_on(broker_id)
    if not held:
        return 0
    moves.check(broker_id, stay)
    note(f"moving {counted(held, 'partition')} away from broker {broker_id}")
    with progress_bar("partitions moved", held) as advance:
        done = 0

        def told(left: int) -> None:
            nonlocal done
            if advance is not None and held - left > done:
                advance(held - left - done)
                done = held - left

        moves.move_away(broker_id, stay, told)
    return held


def _forget(client: Any, broker_id: int) -> None:  # noqa: ANN401 -- as above
    from tidelog.clients.admin.brokers import unregister_broker  # noqa: PLC0415 -- as above

    client.run(unregister_broker(client.view, broker_id))
