"""`tidelog timeline`: what happened to a partition."""

from collections.abc import Sequence
from pathlib import Path

import click

from tidelog.tools.completing import topic_names
from tidelog.tools.output import (
    NOT_FOUND,
    Command,
    Target,
    cluster_options,
    emit_json,
    fail,
    json_option,
    not_found,
    table,
    topic_and_partition,
)

VERSION = 1


@click.command(
    "timeline",
    cls=Command,
    examples=("tidelog timeline orders:0", "tidelog timeline orders:0 --html orders.html"),
)
@click.argument("what", metavar="TOPIC:P", shell_complete=topic_names)
@click.option("--html", metavar="FILE", help="Write a page instead: a column for each process.")
@cluster_options
@json_option
def timeline(target: Target, *, what: str, html: str | None, as_json: bool) -> None:
    """Show what happened to a partition: elections, in-sync replicas, fencing, truncations.

    High watermarks are told where they move after they could not, or in a new epoch. Every process
    records what it does; this puts it together in the order of time, also when the cluster is down.
    """
    # Other commands need none of this.
    from tidelog.tools.supervisor.folder import is_held, run_in  # noqa: PLC0415 -- as said
    from tidelog.tools.timeline import gather, newest_id, of_partition  # noqa: PLC0415 -- as said
    from tidelog.tools.timeline_page import page, said  # noqa: PLC0415 -- as said

    topic, partition = topic_and_partition(what)
    folder = target.folder_of_data()
    run = run_in(folder) if is_held(folder) else None
    entries = gather(run.run_id if run else None, folder / "logs")
    ids, known = _known(target, topic)
    topic_id = ids or newest_id(entries, topic)
    if topic_id is None:
        raise not_found("topic", topic, known, see="tidelog topic list")
    found = of_partition(entries, topic_id, partition)
    if not found:
        fail(f"nothing is known of {what}: see tidelog topic describe {topic}", NOT_FOUND)
    if html is not None:
        _write(html, page(what, found))
    if as_json:
        events = [
            {
                "at": one.at,
                "process": one.process,
                "incarnation": one.incarnation,
                "number": one.number,
                "event": one.event,
                **one.fields,
            }
            for one in found
        ]
        emit_json(
            {
                "version": VERSION,
                "topic": topic,
                "topic_id": topic_id,
                "partition": partition,
                "events": events,
            }
        )
        return
    if html is not None:
        return
    rows = [
        (
            one.at.replace("T", " ").removesuffix("Z"),
            one.process,
            one.event.replace("_", " "),
            said(one),
        )
        for one in found
    ]
    table(rows, ("TIME", "PROCESS", "EVENT", "WHAT"))


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}; choose another file with --html")


def _known(target: Target, topic: str) -> tuple[str | None, Sequence[str]]:
    """The id of the topic that has this name now, and the names there are, as the metadata log
    says it: it can be read whether the cluster runs or not."""
    from tidelog.kernel.ids import uuid_text  # noqa: PLC0415 -- as above
    from tidelog.tools.log_files.data_folder import open_folder  # noqa: PLC0415 -- as above
    from tidelog.tools.supervisor.folder import find  # noqa: PLC0415 -- as above

    names = open_folder(find(target.folder)).image.names
    return (uuid_text(names[topic].id) if topic in names else None), list(names)
