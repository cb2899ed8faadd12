"""What a shell offers while a command is typed: names that are there now.

A shell waits for the answer with every press of Tab: it comes 200 ms after this process began, and
who has said nothing by then has nothing to offer. No failure is told: nobody asked a question yet.
"""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import click

COMPLETION_VARIABLE = "_TIDELOG_COMPLETE"
"""A shell that wants to know how a line may go on sets it."""
ANSWER_WITHIN_S = 0.19
"""Of the life of the process; the rest of 200 ms is for its end."""
PATIENCE_S_MIN = 0.05
"""Even where the machine is so busy that the start alone took all of it."""
CLUSTERS = Path(".tidelog")


def within(seconds: float, find: Callable[[], list[str]]) -> list[str]:
    """What is found in that time; nothing where it takes longer.

    A thread, because looking up a host's name cannot be given a time; it ends with the process.
    """
    found: list[str] = []
    finder = threading.Thread(target=lambda: found.extend(find()), daemon=True)
    finder.start()
    finder.join(seconds)
    return list(found)


def patience_s(age_s: float) -> float:
    """How long a process of this age may wait for a cluster."""
    return max(PATIENCE_S_MIN, ANSWER_WITHIN_S - age_s)


def topic_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics of the cluster that the options so far name."""
    given: object = ctx.params.get(parameter.name or "")
    taken = set(given) if isinstance(given, tuple) else set()
    from tidelog.tools.supervisor.proc import age_ns  # noqa: PLC0415 -- only this needs it

    left_s = patience_s(age_ns(os.getpid()) / 1e9)
    names = within(left_s, lambda: _topics(ctx.params, left_s))
    # What is internal is offered only to who asks for it.
    return [
        name
        for name in names
        if name.startswith(incomplete)
        and name not in taken
        and (incomplete.startswith("_") or not name.startswith("__"))
    ]


def _topics(options: dict[str, object], within_s: float) -> list[str]:
    from tidelog.clients.client import Client  # noqa: PLC0415 -- only a completion pays for it
    from tidelog.clients.cluster_view import refresh  # noqa: PLC0415 -- as above
    from tidelog.clients.failures import ClientError  # noqa: PLC0415 -- as above
    from tidelog.clients.settings import ConnectionSettings  # noqa: PLC0415 -- as above
    from tidelog.clients.transport import Transport  # noqa: PLC0415 -- as above
    from tidelog.kernel.instant import ms  # noqa: PLC0415 -- as above
    from tidelog.tools.connecting import address  # noqa: PLC0415 -- as above
    from tidelog.wire.errors import Rejected, WireError  # noqa: PLC0415 -- as above

    wait_ns = ms(round(within_s * 1_000))
    try:
        addresses = [address(text) for text in _servers(options)]
        transport = Transport(ConnectionSettings("tidelog-completion", wait_ns, wait_ns))
        client = Client(transport, addresses, timeout_ns=wait_ns)
        client.run(refresh(client.view, None))
    except (click.ClickException, ClientError, Rejected, WireError, OSError):
        return []
    return sorted(client.view.topics)


def _servers(options: dict[str, object]) -> Sequence[str]:
    from tidelog.tools.output import Target  # noqa: PLC0415 -- it imports this module

    cluster, data, bootstrap = (options.get(name) for name in ("cluster", "data", "bootstrap"))
    return Target(
        str(cluster) if cluster else Target().cluster,
        str(data) if data else None,
        str(bootstrap) if bootstrap else None,
    ).servers()


def cluster_names(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The clusters that have data under the current folder."""
    return [name for name in clusters() if name.startswith(incomplete)]


def clusters() -> list[str]:
    try:
        return sorted(path.parent.name for path in CLUSTERS.glob("*/cluster.json"))
    except OSError:
        return []
