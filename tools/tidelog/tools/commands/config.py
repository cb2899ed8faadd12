"""`tidelog config`: settings of topics, brokers and groups, on any Kafka cluster."""

from collections.abc import Mapping, Sequence

import click

from tidelog.clients.admin.configs import (
    Change,
    Entry,
    Kind,
    Operation,
    Origin,
    Resource,
    alter_configs,
    describe_configs,
    wait_for_configs,
)
from tidelog.clients.client import Client
from tidelog.clients.failures import TimedOutError
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.instant import s
from tidelog.tools.commands.config_show import show
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import connected, known_topics
from tidelog.tools.linting import findings
from tidelog.tools.output import (
    DONE,
    NOT_FOUND,
    VIOLATION,
    Group,
    Target,
    bootstrap_options,
    emit_json,
    fail,
    json_option,
    nearest,
    not_found,
    note,
    table,
)
from tidelog.wire.errors import Rejected

VERSION = 1
ALL_BROKERS = "all"
SOURCES = {
    Origin.UNKNOWN: "unknown",
    Origin.TOPIC: "topic",
    Origin.BROKER: "broker",
    Origin.ALL_BROKERS: "all brokers",
    Origin.START: "start",
    Origin.DEFAULT: "default",
    Origin.GROUP: "group",
}
KINDS = {"topic": Kind.TOPIC, "broker": Kind.BROKER, "group": Kind.GROUP}
OPERATIONS = {"": Operation.SET, "+": Operation.APPEND, "-": Operation.SUBTRACT}
HIDDEN = "(hidden)"
SETTLE_NS = s(2)
"""How long a change may take to be seen."""


class _KindWord(click.Choice[str]):
    """A noun of `KINDS`, or its plural."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        one = value.removesuffix("s")
        return super().convert(one if one in KINDS else value, param, ctx)


kind_argument = click.argument("kind", metavar="topic|broker|group", type=_KindWord(list(KINDS)))


def _names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Topics, where it is about one."""
    if ctx.params.get("kind") == "topic":
        return topic_names(ctx, parameter, incomplete)
    if ctx.params.get("kind") == "group":
        return []
    return [ALL_BROKERS] if ALL_BROKERS.startswith(incomplete) else []


name_argument = click.argument("name", metavar="NAME", shell_complete=_names)


@click.group(
    "config",
    cls=Group,
    examples=(
        "tidelog config describe topic orders --changed",
        "tidelog config set topic orders retention.ms=86400000",
        "tidelog config lint",
    ),
)
def config() -> None:
    """Show and change settings of topics, brokers and groups."""


config.add_command(show)


# -- describe -----------------------------------------------------------------------------------


@config.command(
    "describe",
    examples=(
        "tidelog config describe topic orders",
        "tidelog config describe broker 0 --changed",
        "tidelog config describe broker all",
    ),
)
@kind_argument
@name_argument
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--changed", is_flag=True, help="Only what is not the default.")
@click.option("--docs", is_flag=True, help="Say what each does.")
@bootstrap_options
@json_option
def describe(  # noqa: PLR0913 -- the options of the command
    target: Target,
    kind: str,
    name: str,
    keys: Sequence[str],
    *,
    changed: bool,
    docs: bool,
    as_json: bool,
) -> None:
    """Show settings and where their values come from.

    NAME is a topic, a group, or a broker's id; `broker all` is what was changed for all brokers at
    once. A group may have settings before it has members.
    """
    with connected(target) as client:
        resource = _resource(client, kind, name)
        entries = _asked(client.run(describe_configs([resource]))[resource], keys)
    shown = [one for one in entries if not changed or one.origin is not Origin.DEFAULT]
    if as_json:
        documents = [_document(one, resource.kind) for one in shown]
        emit_json({"version": VERSION, "kind": kind, "name": name, "settings": documents})
    elif docs:
        _tell(shown)
    else:
        rows = [
            (one.name, _value(one), _default(one, resource.kind), SOURCES[one.origin])
            for one in shown
        ]
        table(rows, ("SETTING", "VALUE", "DEFAULT", "SOURCE"))


def _resource(client: Client, kind: str, name: str) -> Resource:
    if kind == "topic":
        (topic,) = known_topics(client, [name])
        return Resource(Kind.TOPIC, topic.name)
    if kind == "group":
        return Resource(Kind.GROUP, name)  # its settings may be there before it is
    if name == ALL_BROKERS:
        return Resource(Kind.BROKER, "")
    brokers = {str(broker) for broker in client.view.brokers}
    if name not in brokers:
        known = ", ".join(sorted(brokers, key=int))
        fail(f"there is no broker {name!r}: the brokers are {known}", NOT_FOUND)
    return Resource(Kind.BROKER, str(BrokerId(int(name))))


def _asked(entries: Sequence[Entry], keys: Sequence[str]) -> Sequence[Entry]:
    if not keys:
        return entries
    by_name = {one.name: one for one in entries}
    for key in keys:
        if key not in by_name:
            raise not_found("setting", key, by_name, see="tidelog config describe")
    return [by_name[key] for key in dict.fromkeys(keys)]


def _value(one: Entry) -> str | None:
    return HIDDEN if one.sensitive else one.value


def _default(one: Entry, kind: Kind) -> str | None:
    """As the cluster says; where it does not, as Kafka has it."""
    if one.default is not None or kind is not Kind.TOPIC:
        return one.default
    from tidelog.node.settings import TOPIC  # noqa: PLC0415 -- only a few settings need the table

    return TOPIC.rows[one.name].default if one.name in TOPIC.rows else None


def _document(one: Entry, kind: Kind) -> dict[str, object]:
    return {
        "name": one.name,
        "value": one.value,
        "default": _default(one, kind),
        "source": SOURCES[one.origin],
        "read_only": one.read_only,
        "sensitive": one.sensitive,
        "synonyms": [
            {"name": said.name, "value": said.value, "source": SOURCES[said.origin]}
            for said in one.synonyms
        ],
        "documentation": one.documentation,
    }


def _tell(entries: Sequence[Entry]) -> None:
    for one in entries:
        value = _value(one)
        click.echo(f"{one.name}={'' if value is None else value} ({SOURCES[one.origin]})")
        click.echo(f"    {one.documentation or 'The cluster says nothing of it.'}")


# -- set and unset ------------------------------------------------------------------------------

dry_run_option = click.option("--dry-run", is_flag=True, help="Only check whether it could be.")


@config.command(
    "set",
    examples=(
        "tidelog config set topic orders retention.ms=86400000",
        "tidelog config set topic orders cleanup.policy+=compact",
        "tidelog config set broker all log.retention.ms=3600000",
    ),
)
@kind_argument
@name_argument
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True)
@dry_run_option
@bootstrap_options
@json_option
def set_(
    target: Target, kind: str, name: str, settings: Sequence[str], *, dry_run: bool, as_json: bool
) -> None:
    """Change settings, all of them or none.

    KEY+=VALUE adds to a list, KEY-=VALUE takes away from it.
    """
    changes = [change(text) for text in settings]
    with connected(target) as client:
        resource = _resource(client, kind, name)
        _alter(client, resource, changes, dry_run=dry_run)
        _finish(client, (kind, name), resource, changes, dry_run=dry_run, as_json=as_json)


@config.command(
    "unset",
    examples=(
        "tidelog config unset topic orders retention.ms",
        "tidelog config unset broker 0 log.cleaner.threads --json",
    ),
)
@kind_argument
@name_argument
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@dry_run_option
@bootstrap_options
@json_option
def unset(
    target: Target, kind: str, name: str, keys: Sequence[str], *, dry_run: bool, as_json: bool
) -> None:
    """Take settings back, to what holds without them."""
    changes = [Change(key, Operation.DELETE) for key in keys]
    with connected(target) as client:
        resource = _resource(client, kind, name)
        check_names(client, resource, keys)
        _alter(client, resource, changes, dry_run=dry_run)
        _finish(client, (kind, name), resource, changes, dry_run=dry_run, as_json=as_json)


def check_names(client: Client, resource: Resource, keys: Sequence[str]) -> None:
    """The command ends at a mistyped one: no cluster refuses to take back what is not known."""
    # What was set for all brokers is not all that could be; one broker knows that.
    asked = resource if resource.name else Resource(Kind.BROKER, str(min(client.view.brokers)))
    known = {one.name for one in client.run(describe_configs([asked]))[asked]}
    for key in keys:
        if key not in known:
            raise not_found("setting", key, known, see="tidelog config describe")


def change(text: str) -> Change:
    """`K=V`, `K+=V` or `K-=V`."""
    key, equals, value = text.partition("=")
    sign = key[-1:] if key[-1:] in {"+", "-"} else ""
    key = key.removesuffix(sign) if sign else key
    if not equals or not key:
        raise click.UsageError(f"{text!r}: must be KEY=VALUE")
    return Change(key, OPERATIONS[sign], value)


def _alter(client: Client, resource: Resource, changes: Sequence[Change], *, dry_run: bool) -> None:
    try:
        client.run(alter_configs(resource, changes, validate_only=dry_run))
    except Rejected as refused:
        what = f"{resource.kind.name.lower()} {resource.name or ALL_BROKERS}"
        fail(f"settings of {what} are not changed: {why_refused(refused, resource.kind, changes)}")


def why_refused(refused: Rejected, kind: Kind, changes: Sequence[Change]) -> str:
    """The cluster's reason; with the nearest name, where another cluster leaves that to us."""
    reason = refused.detail.rstrip(".") or refused.code.name
    return reason + meant([one.name for one in changes], kind, reason)


def meant(names: Sequence[str], kind: Kind, reason: str) -> str:
    """`; did you mean 'x'?` for the first name that is not Kafka's, unless the reason has it."""
    from tidelog.node.resource_settings import GROUP  # noqa: PLC0415 -- only a refusal needs them
    from tidelog.node.settings import BROKER, TOPIC  # noqa: PLC0415 -- as above

    known = {Kind.TOPIC: TOPIC, Kind.BROKER: BROKER, Kind.GROUP: GROUP}[kind].rows
    strange = [name for name in names if name not in known]
    return nearest(strange[0], known) if strange and "did you mean" not in reason else ""


def _finish(
    client: Client,
    asked: tuple[str, str],
    resource: Resource,
    changes: Sequence[Change],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Say what is in force now; warn where it contradicts something."""
    kind, name = asked
    if not dry_run:
        settle(client, resource, changes)
    now = {one.name: one for one in client.run(describe_configs([resource]))[resource]}
    if as_json:
        head = {"version": VERSION, "kind": kind, "name": name, "dry_run": dry_run}
        emit_json(head | {"settings": _documents(changes, now, resource.kind)})
    else:
        for one in changes:
            click.echo(f"{kind} {name}: {_told(one, now.get(one.name), dry_run=dry_run)}")
    if not dry_run and resource.name:
        _warn(client, resource, {one.name for one in changes})


def _documents(
    changes: Sequence[Change], now: Mapping[str, Entry], kind: Kind
) -> list[dict[str, object]]:
    return [_document(now[one.name], kind) for one in changes if one.name in now]


def settle(client: Client, resource: Resource, changes: Sequence[Change]) -> None:
    """What is told next is what is in force."""
    try:
        client.run(wait_for_configs(resource, changes), SETTLE_NS)
    except TimedOutError:
        note("changed, but not every setting is in force yet")


def _warn(client: Client, resource: Resource, touched: set[str]) -> None:
    for found in findings(client, [resource]):
        if found.setting in touched:
            note(f"warning: {found.setting}: {found.reason}")


def _told(made: Change, now: Entry | None, *, dry_run: bool) -> str:
    if dry_run:
        return f"{made.name} may be changed"
    if now is None:
        return f"{made.name} is not set"
    value = _value(now)
    if value is None:
        return f"{made.name} is not set"
    return f"{made.name}={value} ({SOURCES[now.origin]})"


# -- lint ---------------------------------------------------------------------------------------


@config.command("lint", examples=("tidelog config lint", "tidelog config lint --json"))
@bootstrap_options
@json_option
def lint(target: Target, *, as_json: bool) -> int:
    """Warn of settings that contradict or lose data.

    Exits 5 where there is something to warn of.
    """
    with connected(target) as client:
        found = findings(client)
    if as_json:
        rows = [one._asdict() for one in found]
        emit_json({"version": VERSION, "findings": rows})
    else:
        table(found, ("WHERE", "SETTING", "WHY"))
    return VIOLATION if found else DONE
