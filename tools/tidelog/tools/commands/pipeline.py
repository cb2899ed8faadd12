"""`tidelog pipeline`: programs on Spark, each started in a process of its own."""

import importlib.util
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from tidelog.tools.connecting import address
from tidelog.tools.connector_jars import JARS, fetch_by_maven, gather_jars
from tidelog.tools.output import (
    Command,
    Group,
    Target,
    bootstrap_options,
    counted,
    emit_json,
    fail,
    json_option,
    note,
)
from tidelog.tools.pipeline_package import ARCHIVE, PROGRAM, write_package
from tidelog.tools.pipeline_rows import COMMON, PIPELINES, Pipeline, Row
from tidelog.tools.supervisor.folder import find, is_held

VERSION = 1
_EXTRA = ("pyspark", "pyarrow", "numpy")


@click.group(
    "pipeline",
    cls=Group,
    examples=(
        "tidelog pipeline produce --topic load --partitions 6 --rows 10M",
        "tidelog pipeline produce --topic load --master spark://host:7077 --print-submit",
    ),
)
def pipeline() -> None:
    """Programs on Spark: load, copies of topics, checks and figures."""


@pipeline.command(
    "jars",
    examples=("tidelog pipeline jars --dest jars", "tidelog pipeline jars --dest /opt/jars --json"),
)
@click.option("--dest", metavar="DIR", required=True, help="The folder to put them into.")
@json_option
def jars(*, dest: str, as_json: bool) -> None:
    """Fetch the jars of Spark's own Kafka connector, each by its name and its checksum.

    By Maven, where a jar is not in the folder already; what is there is checked. Our own data
    source needs none of them.
    """
    folder = Path(dest).absolute()
    fetched = gather_jars(folder, fetch_by_maven)
    if as_json:
        names = [str(folder / jar.name) for jar in JARS]
        emit_json({"version": VERSION, "jars": names, "fetched": [jar.name for jar in fetched]})
        return
    click.echo(f"{counted(len(JARS), 'jar')} in {folder}, {len(fetched)} of them fetched now")
    click.echo(f"--conf spark.jars={','.join(str(folder / jar.name) for jar in JARS)}")


@pipeline.command(
    "package", examples=("tidelog pipeline package", "tidelog pipeline package --dest sent")
)
@click.option("--dest", metavar="DIR", default=".", show_default=True, help="Where to put it.")
@json_option
def package(*, dest: str, as_json: bool) -> None:
    """Write the two files that --print-submit names: our modules as an archive, and the program.

    The machines of the cluster need numpy, pyarrow and tidelog's other requirements installed.
    """
    write_package(Path(dest))
    written = [str(Path(dest) / name) for name in (ARCHIVE, PROGRAM)]
    if as_json:
        emit_json({"version": VERSION, "written": written})
        return
    click.echo("\n".join(written))


def _command(name: str, program: Pipeline) -> click.Command:
    rows = (*program.rows, *COMMON)

    def start(target: Target, *, print_submit: bool, as_json: bool, **given: Any) -> None:  # noqa: ANN401 -- by the rows
        where = _where(target, program, given)
        if not print_submit:  # what a program prints is JSON in any case
            master = given["master"] or "local"
            _become(name, [*where, *_words(rows, given)], here=master.startswith("local"))
        line = _submit_words(name, [*where, *_words(program.rows, given)], given)
        if as_json:
            emit_json({"version": VERSION, "submit": line})
        else:
            click.echo(shlex.join(line))

    command: Any = bootstrap_options(json_option(start))
    command = click.option(
        "--print-submit", is_flag=True, help="Print the line for spark-submit, and start nothing."
    )(command)
    for row in reversed(rows):
        command = _option(row)(command)
    made: click.Command = click.command(
        name, cls=Command, examples=program.examples, help=program.help
    )(command)
    return made


def _where(target: Target, program: Pipeline, given: Mapping[str, Any]) -> list[str]:
    """How the program finds the records: of a stopped cluster in its files, where it can."""
    if program.offline is not None and given[_key(program.offline)]:
        return []
    if program.reads_files and not target.bootstrap and target.folder.is_dir():
        folder = find(target.folder)
        if not is_held(folder):
            note(f"{target.label} is not running: its files are read")
            return [f"--data={folder}"]
    return [f"--bootstrap={_servers(target)}"]


def _option(row: Row) -> Any:  # noqa: ANN401 -- a decorator of click's
    if row.metavar is None:
        return click.option(row.name, is_flag=True, help=row.help)
    return click.option(
        row.name,
        metavar=None if row.choices else row.metavar,
        type=click.Choice(row.choices) if row.choices else str,
        required=row.required,
        multiple=row.repeats,
        help=row.help,
    )


def _words(rows: Sequence[Row], given: Mapping[str, Any]) -> list[str]:
    """The options as the program reads them: by the same names."""
    words = []
    for row in rows:
        value = given[_key(row.name)]
        if value is True:
            words.append(row.name)
        elif isinstance(value, tuple):
            words += [f"{row.name}={one}" for one in value]
        elif value:
            words.append(f"{row.name}={value}")
    return words


def _key(option: str) -> str:
    """As click names what an option gives."""
    return option.removeprefix("--").replace("-", "_")


def _servers(target: Target) -> str:
    """As the programs want them: each with its port."""
    found = [address(one) for one in target.servers()]
    return ",".join(
        f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}" for one in found
    )


def _submit_words(name: str, words: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    conf = [word for one in given["conf"] for word in ("--conf", one)]
    line = ["spark-submit", "--master", given["master"] or "local[*]", "--py-files", ARCHIVE]
    return [*line, *conf, PROGRAM, name, *words]


def _become(name: str, words: Sequence[str], *, here: bool) -> NoReturn:
    """The program in this process's place: signals and the exit code are its own."""
    missing = [one for one in _EXTRA if importlib.util.find_spec(one) is None]
    if missing:
        fail(f"tidelog pipeline needs {' and '.join(missing)}: pip install 'tidelog[spark]'")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "looked for just now"
    assert spec.origin is not None, "it is no namespace"
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **os.environ,
        "SPARK_HOME": str(Path(spec.origin).parent),
    }
    if here:  # else Spark warns that it looks for an address that others could reach
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.stdout.flush()
    started = [sys.executable, "-m", "tidelog.spark.pipelines", name, *words]
    # Until the program takes them: Python's own start answers Ctrl-C with a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    os.execve(sys.executable, started, environment)  # noqa: S606 -- our own program


for _name, _program in PIPELINES.items():
    pipeline.add_command(_command(_name, _program))
