"""`tidelog group`: who reads together, and how far, on any Kafka cluster."""

from collections.abc import Mapping, Sequence

import click

from tidelog.clients.admin.group_offsets import CommittedOffset, committed_offsets
from tidelog.clients.admin.groups import (
    DescribedGroup,
    GroupMember,
    ListedGroup,
    delete_group,
    describe_group,
    list_groups,
)
from tidelog.clients.admin.offsets import END, peek_offsets
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.kernel.ids import TopicPartition
from tidelog.tools.commands.group_reset import reset_offsets
from tidelog.tools.connecting import connected
from tidelog.tools.output import (
    FAILED,
    Group,
    Target,
    bootstrap_options,
    confirm,
    emit_json,
    fail,
    json_option,
    not_found,
    table,
    yes_option,
)
from tidelog.tools.pending_offsets import Pending, pending_offsets
from tidelog.wire.errors import ErrorCode

VERSION = 1


@click.group(
    "group",
    cls=Group,
    examples=("tidelog group list", "tidelog group describe billing --members"),
)
def group() -> None:
    """List, describe, delete and move consumer groups."""


group.add_command(reset_offsets)


# -- list ---------------------------------------------------------------------------------------


@group.command("list", examples=("tidelog group list", "tidelog group list --state --json"))
@click.option("--state", "with_state", is_flag=True, help="Show each group's state, too.")
@bootstrap_options
@json_option
def list_(target: Target, *, with_state: bool, as_json: bool) -> None:
    """List the groups."""
    with connected(target) as client:
        found = client.run(list_groups(client.view))
    if as_json:
        emit_json({"version": VERSION, "groups": [_listed(one) for one in found]})
    elif with_state:
        rows = [(one.name, one.kind, one.protocol_type, one.state) for one in found]
        table(rows, ("GROUP", "TYPE", "PROTOCOL", "STATE"))
    else:
        for one in found:
            click.echo(one.name)


def _listed(one: ListedGroup) -> dict[str, object]:
    return {
        "name": one.name,
        "type": one.kind or None,
        "protocol_type": one.protocol_type,
        "state": one.state or None,
    }


# -- describe -----------------------------------------------------------------------------------


@group.command(
    "describe",
    examples=(
        "tidelog group describe billing",
        "tidelog group describe billing --members --verbose",
        "tidelog group describe billing --state --json",
    ),
)
@click.argument("name", metavar="GROUP")
@click.option("--members", is_flag=True, help="Who is in it.")
@click.option("--verbose", is_flag=True, help="With --members: what each of them has.")
@click.option("--offsets", is_flag=True, help="How far it has read, and who reads: the default.")
@click.option("--state", is_flag=True, help="The group as a whole.")
@bootstrap_options
@json_option
def describe(  # noqa: PLR0913 -- the options of the command
    target: Target,
    name: str,
    *,
    members: bool,
    verbose: bool,
    offsets: bool,
    state: bool,
    as_json: bool,
) -> None:
    """Show what a group has committed, how far behind it is, and who reads.

    What a transaction has committed that is still open is pending, and named with it.
    """
    offsets = offsets or not (members or state)
    found, rows = _found(target, name, offsets=offsets)
    if as_json:
        emit_json(_document(found, rows if offsets else None, members=members))
        return
    if state:
        _print_state(found)
    if members:
        _print_members(found, verbose=verbose)
    if offsets:
        _print_offsets(rows)


def _found(
    target: Target, name: str, *, offsets: bool
) -> tuple[DescribedGroup, list[dict[str, object]]]:
    """The group, and how far it is in each partition where that is wanted."""
    with connected(target) as client:
        found = known_group(client, name)
        return found, _offset_rows(client, found) if offsets else []


def _document(
    found: DescribedGroup, rows: list[dict[str, object]] | None, *, members: bool
) -> dict[str, object]:
    document = {"version": VERSION, **_state(found)}
    if rows is not None:
        document["offsets"] = rows
    if members:
        document["members"] = [_member(one) for one in found.members]
    return document


def known_group(client: Client, name: str) -> DescribedGroup:
    """The command ends where there is no such group."""
    found = client.run(describe_group(client.view, name))
    if found is None:
        names = [one.name for one in client.run(list_groups(client.view))]
        raise not_found("group", name, names, see="tidelog group list")
    return found


def _ends(client: Client, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs end, as far as anybody tells now."""
    client.run(refresh(client.view, sorted({topic for topic, _ in partitions})))
    wanted = dict.fromkeys(sorted(partitions), END)
    found = client.run(peek_offsets(client.view, wanted))
    return {partition: one.offset for partition, one in found.items()}


def _offset_rows(client: Client, found: DescribedGroup) -> list[dict[str, object]]:
    committed = client.run(committed_offsets(client.view, found.name))
    owners = found.owners()
    pending = pending_offsets(client, found.name, {*committed, *owners})
    keys = sorted({*committed, *owners, *pending})
    ends = _ends(client, set(keys))
    return [
        {
            "topic": key[0],
            "partition": key[1],
            **_progress(committed.get(key), ends.get(key)),
            **_owner(owners.get(key)),
            "pending": _pending(pending[key]) if key in pending else None,
        }
        for key in keys
    ]


def _progress(committed: CommittedOffset | None, end: int | None) -> dict[str, object]:
    current = None if committed is None else committed.offset
    lag = None if current is None or end is None else max(end - current, 0)
    return {"current": current, "end": end, "lag": lag}


def _owner(owner: GroupMember | None) -> dict[str, object]:
    return {
        "owner": None if owner is None else owner.member_id,
        "host": None if owner is None else owner.host,
        "client_id": None if owner is None else owner.client_id,
    }


def _pending(one: Pending) -> dict[str, object]:
    """Committed by a transaction that is open."""
    return {
        "offset": one.offset,
        "producer_id": one.producer_id,
        "transactional_id": one.transactional_id,
    }


_OFFSET_COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "current": "CURRENT",
    "end": "END",
    "lag": "LAG",
    "owner": "OWNER",
    "host": "HOST",
    "client_id": "CLIENT",
}


def _print_offsets(rows: Sequence[Mapping[str, object]]) -> None:
    shown = [[row[column] for column in _OFFSET_COLUMNS] for row in rows]
    columns = [*_OFFSET_COLUMNS.values()]
    if any(row["pending"] for row in rows):
        columns += ["PENDING", "TRANSACTION"]
        shown = [
            [*cells, *_pending_cells(row["pending"])]
            for cells, row in zip(shown, rows, strict=True)
        ]
    table(shown, columns)


def _pending_cells(pending: object) -> list[object]:
    """What is pending, and whose; a mark where nobody tells what it is."""
    if not isinstance(pending, dict):
        return [None, None]
    offset, producer = pending["offset"], pending["producer_id"]
    whose = pending["transactional_id"] or (producer and f"of producer {producer}")
    return ["?" if offset is None else offset, whose]


def _state(found: DescribedGroup) -> dict[str, object]:
    return {
        "name": found.name,
        "type": found.kind,
        "state": found.state,
        "coordinator": found.coordinator,
        "assignor": found.assignor or None,
        "epoch": found.epoch,
        "target_epoch": found.target_epoch,
        "member_count": len(found.members),
    }


def _print_state(found: DescribedGroup) -> None:
    row = (
        found.name,
        found.kind,
        found.state,
        found.coordinator,
        found.assignor,
        found.epoch,
        found.target_epoch,
        len(found.members),
    )
    columns = ("GROUP", "TYPE", "STATE", "COORDINATOR", "ASSIGNOR", "EPOCH", "TARGET", "MEMBERS")
    table([row], columns)


def _member(one: GroupMember) -> dict[str, object]:
    return {
        "member_id": one.member_id,
        "instance_id": one.instance_id,
        "client_id": one.client_id,
        "host": one.host,
        "epoch": one.epoch,
        "assigned": {topic: list(given) for topic, given in one.assigned.items()},
        "target": None
        if one.target is None
        else {topic: list(given) for topic, given in one.target.items()},
    }


def _print_members(found: DescribedGroup, *, verbose: bool) -> None:
    rows = []
    for one in found.members:
        count = sum(map(len, one.assigned.values()))
        row = [one.member_id, one.instance_id, one.host, one.client_id, one.epoch, count]
        rows.append([*row, _assignment(one.assigned)] if verbose else row)
    columns = ["MEMBER", "INSTANCE", "HOST", "CLIENT", "EPOCH", "PARTITIONS"]
    table(rows, [*columns, "ASSIGNMENT"] if verbose else columns)


def _assignment(assigned: Mapping[str, Sequence[int]]) -> str:
    return " ".join(
        f"{topic}:{','.join(map(str, sorted(given)))}" for topic, given in sorted(assigned.items())
    )


# -- delete -------------------------------------------------------------------------------------


_SENTENCES = {
    ErrorCode.NON_EMPTY_GROUP: "it has members: stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "it is gone",
}


@group.command(
    "delete",
    examples=("tidelog group delete billing", "tidelog group delete old older --yes"),
)
@click.argument("names", metavar="GROUP…", nargs=-1, required=True)
@yes_option
@bootstrap_options
@json_option
def delete(target: Target, names: Sequence[str], *, yes: bool, as_json: bool) -> None:
    """Delete groups that nobody is in, and the offsets that they committed."""
    wanted = list(dict.fromkeys(names))
    failed: list[str] = []
    deleted: list[str] = []
    with connected(target) as client:
        for name in wanted:
            known_group(client, name)
        confirm(f"the committed offsets of {', '.join(wanted)}", yes=yes)
        for name in wanted:
            code = client.run(delete_group(client.view, name))
            if code is ErrorCode.NONE:
                deleted.append(name)
            else:
                failed.append(f"{name}: {_SENTENCES.get(code, code.name)}")
    if as_json:
        emit_json({"version": VERSION, "deleted": deleted})
    else:
        for name in deleted:
            click.echo(f"deleted {name}")
    if failed:
        fail(f"not deleted: {'; '.join(failed)}", FAILED)
