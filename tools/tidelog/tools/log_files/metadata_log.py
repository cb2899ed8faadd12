"""Checks what a coordinator keeps: the metadata log, and what lies beside it."""

from tidelog.coordinator.runtime.flushed import flushed_end
from tidelog.kernel.files import Directory
from tidelog.node.log.marks import MARK_NAME
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.kinds import FileKind, kind_of
from tidelog.tools.log_files.metadata_replay import NAME, Replay
from tidelog.tools.log_files.verify_directory import Around, is_whole_mark, life_of
from tidelog.tools.log_files.verify_log import Known, Life, verify_log

_OF_COORDINATOR = frozenset({FileKind.MARK, FileKind.LOCK, FileKind.LEFT_BEHIND})


def verify_coordinator(top: Directory, around: Around, report: Report) -> None:
    """A coordinator's directory: the metadata log, its snapshots, and that they agree."""
    report.looked.directories += 1
    life = life_of(top, around)
    _check_own_files(top, report)
    directory = top.directory(NAME)
    point = flushed_end(directory) if life is Life.POWER_LOST else 0
    verify_log(directory, Known(life=life, recovery_point=point, metadata=True), report)
    Replay(directory, report).run()


def _check_own_files(top: Directory, report: Report) -> None:
    for name in top.names():
        if name != NAME and kind_of(name) not in _OF_COORDINATOR:
            report.violation(f"{top.path}/{name}", "is not a file of a coordinator")
    content, place = top.read_all(MARK_NAME), f"{top.path}/{MARK_NAME}"
    if content is None:
        report.violation(place, "is missing")
    elif not is_whole_mark(content):
        report.violation(place, "is not whole")
