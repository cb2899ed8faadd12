"""`tidelog log verify`: whether the files of a log say what is true."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from tidelog.tools.completing import topic_names
from tidelog.tools.log_files.cluster_folder import (
    verify_coordinator_directory,
    verify_folder,
    verify_log_directories,
    verify_log_directory,
    verify_partition,
)
from tidelog.tools.log_files.findings import Finding, Looked, Report
from tidelog.tools.log_files.places import Place, PlaceKind, place_of, resolve
from tidelog.tools.output import (
    VIOLATION,
    Command,
    Target,
    cluster_options,
    counted,
    emit_json,
    fail,
    json_option,
    progress_bar,
    size,
)

VERSION = 1
_CHECKS: dict[PlaceKind, Callable[[Path, Report], None]] = {
    PlaceKind.PARTITION: verify_partition,
    PlaceKind.LOG_DIRECTORY: verify_log_directory,
    PlaceKind.LOG_DIRECTORIES: verify_log_directories,
    PlaceKind.COORDINATOR: verify_coordinator_directory,
    PlaceKind.CLUSTER: verify_folder,
}


@click.command(
    "verify",
    cls=Command,
    examples=(
        "tidelog log verify",
        "tidelog log verify orders:0 --json",
        "tidelog log verify .tidelog/default/broker-0",
    ),
)
@click.argument("what", metavar="[PATH|TOPIC:P]", required=False, shell_complete=topic_names)
@click.option("--broker", metavar="ID", type=click.IntRange(0), help="Whose replica of TOPIC:P.")
@cluster_options
@json_option
def verify(target: Target, *, what: str | None, broker: int | None, as_json: bool) -> None:
    """Check every batch and every file that is made from them; exit 5 where one is wrong.

    Checks checksums, order of offsets and leader epochs, both indexes, producer snapshots against
    a rebuild, leader epochs, checkpoints, marks, metadata snapshots, and that no other file is
    there. Works while the brokers run. Without an argument all of the cluster is checked.
    """
    place = resolve(what, target, broker)
    with _report(place) as report:
        only = _check(place, report)
    violations = [one for one in report.violations if only in {None, one.file}]
    remarks = [one for one in report.remarks if only in {None, one.file}]
    if as_json:
        emit_json(_document(report.looked, violations, remarks))
    else:
        _print(report.looked, violations, remarks)
    if violations:
        several = "violation" if len(violations) == 1 else "violations"
        fail(f"{len(violations)} {several} in {place.path}", VIOLATION)


@contextmanager
def _report(place: Place) -> Iterator[Report]:
    path = place.path.parent if place.kind is PlaceKind.FILE else place.path
    total = sum(entry.lstat().st_size for entry in path.rglob("*") if entry.is_file())
    with progress_bar("verifying", total) as advance:
        yield Report(advance)


def _check(place: Place, report: Report) -> str | None:
    """Of a file its directory is checked; then only what is said of the file counts."""
    if place.kind is not PlaceKind.FILE:
        _CHECKS[place.kind](place.path, report)
        return None
    above = place_of(place.path.parent)
    _CHECKS[above.kind](above.path, report)
    return str(above.path / place.path.name)


def _document(
    looked: Looked, violations: Sequence[Finding], remarks: Sequence[Finding]
) -> dict[str, object]:
    return {
        "version": VERSION,
        "clean": not violations,
        "checked": {
            "directories": looked.directories,
            "partitions": looked.partitions,
            "segments": looked.segments,
            "batches": looked.batches,
            "bytes": looked.bytes,
        },
        "violations": [_finding(one) for one in violations],
        "remarks": [_finding(one) for one in remarks],
    }


def _finding(one: Finding) -> dict[str, object]:
    return {"file": one.file, "position": one.position, "reason": one.reason}


def _print(looked: Looked, violations: Sequence[Finding], remarks: Sequence[Finding]) -> None:
    for word, findings in (("VIOLATION", violations), ("remark", remarks)):
        for one in findings:
            at = "" if one.position is None else f", byte {one.position}"
            click.echo(f"{word}  {one.file}{at}: {one.reason}")
    click.echo(
        f"checked {counted(looked.partitions, 'partition')}, "
        f"{counted(looked.segments, 'segment')}, "
        f"{counted(looked.batches, 'batch', 'batches')}, {size(looked.bytes)}: "
        + ("clean" if not violations else f"{len(violations)} wrong")
    )
