"""`tidelog metrics`: a cluster's figures as Prometheus reads them."""

import signal
import sys
from collections.abc import Callable
from types import ModuleType

import click

from tidelog.tools.metrics_look import look_around
from tidelog.tools.metrics_rows import Family, families, rows
from tidelog.tools.output import (
    Command,
    Target,
    cluster_options,
    emit_json,
    fail,
    json_option,
)

VERSION = 1
_PORT_MAX = 65_535


@click.command(
    "metrics",
    cls=Command,
    examples=("tidelog metrics", "tidelog metrics --port 9464", "tidelog metrics --json"),
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, _PORT_MAX),
    help="Serve them on loopback until Ctrl-C; 0 takes a free port.",
)
@cluster_options
@json_option
def metrics(target: Target, *, port: int | None, as_json: bool) -> None:
    """Print a cluster's metrics in Prometheus' text form, or serve them.

    Reads shared memory, files and the metadata log, asks no broker, and works on a cluster that is
    down. The text form needs the extra `metrics`; docs/metrics.md lists what there is.
    """
    path = target.folder_of_data()

    def look() -> list[Family]:
        try:
            return families(look_around(path))
        except FileNotFoundError:
            return []  # the data folder was removed

    if port is not None:
        _serve(look, port, as_json=as_json)
    elif as_json:
        emit_json({"version": VERSION, "data": str(path), "metrics": rows(look())})
    else:
        click.echo(_library().text_of(look()), nl=False)


def _library() -> ModuleType:
    try:
        from tidelog.tools import metrics_text  # noqa: PLC0415 -- it comes with an extra
    except ModuleNotFoundError as missing:
        if missing.name != "prometheus_client":
            raise
        fail("this needs prometheus-client: install tidelog[metrics], or ask for --json")
    return metrics_text


def _serve(look: Callable[[], list[Family]], port: int, *, as_json: bool) -> None:
    library = _library()
    try:
        served, end = library.serve(look, port)
    except OSError as error:
        fail(f"cannot listen on 127.0.0.1:{port} ({error.strerror}): choose another --port")
    url = f"http://127.0.0.1:{served}/metrics"
    if as_json:
        emit_json({"version": VERSION, "url": url})
    else:
        click.echo(f"metrics on {url}, until Ctrl-C")
    sys.stdout.flush()
    try:
        signal.pause()
    finally:
        end()
