"""How a compacted segment takes the place of old ones, so that a crash at any point loses nothing.

As Kafka's: the new files are written as `.cleaned`, synced, and renamed to `.swap`, the log last:
from then on they count. The old ones are renamed to `.deleted`; when no power loss can bring them
back, the new ones get their names. A start that finds `.swap` files completes what was begun; what
is still called `.cleaned` was not finished, and goes.

The worker does all up to the log's own rename. That one and what follows is done by the log's owner
(`swapping.py`), between two events, so that nothing it does to the log can come in between.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.scan import Scan
from tidelog.node.log.segments import remove_segment
from tidelog.wire.log_files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TXN_CHECK_SUFFIX,
    file_name,
    offsets_with_suffix,
)

if TYPE_CHECKING:
    from tidelog.node.log.cleaning import Cleaned
    from tidelog.node.log.log import Log
    from tidelog.node.log.swapping import Swap

OnLoop = Callable[[Callable[[], Any]], Any]
"""Has the log's owner call something between two events, and gives what that returns."""

assert SEGMENT_SUFFIXES[0] == LOG_SUFFIX, "the log goes last when the list is read backwards"


def discard_unfinished(directory: Directory) -> None:
    """Remove what an earlier pass left: a start must never take it for news.

    A `.log.cleaned` is there from the first to the last moment, and says that nothing counts.
    """
    names = directory.names()
    left = [name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    if not left:
        return
    for base in offsets_with_suffix(names, LOG_SUFFIX + SWAP_SUFFIX):
        log = file_name(base, LOG_SUFFIX)
        directory.rename(log + SWAP_SUFFIX, log + CLEANED_SUFFIX)
    directory.sync()
    for name in left:
        if LOG_SUFFIX + "." not in name:
            directory.unlink(name)
    directory.sync()
    for name in left:
        directory.unlink(
            name.removesuffix(SWAP_SUFFIX).removesuffix(CLEANED_SUFFIX) + CLEANED_SUFFIX
        )


def prepare_swap(directory: Directory, base: int) -> None:
    """From synced `.cleaned` files; durable when it returns. The log's own rename is left to the
    log's owner (`swapping.py`), which knows whether the log is still the same."""
    directory.sync()
    for suffix in SEGMENT_SUFFIXES[1:]:
        name = file_name(base, suffix)
        if directory.exists(name + CLEANED_SUFFIX):
            directory.rename(name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
    directory.sync()


def put_in_force(
    log: "Log", cleaned: "Cleaned", cuts: int, remove_at_ms: int, on_loop: OnLoop
) -> bool:
    """In a thread that may block. False if the log is not what it was when the pass began: then the
    caller ends the pass, and calls `discard_unfinished` when nobody writes for it any more.

    `cuts` is how often its end had been cut off by then.
    """
    bases = [one.base for one in cleaned.old]
    swap: Swap | None = on_loop(partial(log.begin_swap, bases, cleaned.size, cuts))
    if swap is not None:
        log.directory.sync()
    if swap is None or not on_loop(partial(swap.take, remove_at_ms)):
        return False
    # The old names must be gone for good before a new file may be called like one of them.
    log.directory.sync()
    on_loop(swap.finish)
    return True


def finish_swaps(directory: Directory) -> None:
    """At a start: put whole new segments in the old ones' place, and remove what is not whole.

    It may be killed and done again. An old segment that no record of the new one reaches stays, as
    in Kafka: it was not cleaned yet, for all anybody can see.
    """
    names = directory.names()
    for base in offsets_with_suffix(names, LOG_SUFFIX + SWAP_SUFFIX):
        end = _end_of(directory, base)
        for old in offsets_with_suffix(names, LOG_SUFFIX):
            if base < old < end:
                remove_segment(directory, old)
        if not directory.exists(file_name(base, TXN_CHECK_SUFFIX) + SWAP_SUFFIX):
            directory.unlink(file_name(base, TXN_CHECK_SUFFIX))  # it is of the old segment's index
        directory.sync()
        _rename_all(directory, base)
    unfinished = set(offsets_with_suffix(names, LOG_SUFFIX + CLEANED_SUFFIX))
    for base in offsets_with_suffix(names, LOG_SUFFIX):
        if base not in unfinished:
            _rename_all(directory, base)  # only its log had got its name
    directory.sync()
    discard_unfinished(directory)


def _rename_all(directory: Directory, base: int) -> None:
    for suffix in reversed(SEGMENT_SUFFIXES):
        name = file_name(base, suffix)
        if directory.exists(name + SWAP_SUFFIX):
            directory.rename(name + SWAP_SUFFIX, name)


def _end_of(directory: Directory, base: int) -> int:
    """Behind its last batch; CorruptError where it does not hold together. All segments below that
    offset are removed, so a wrong one must not be believed."""
    file = directory.open_existing(file_name(base, LOG_SUFFIX) + SWAP_SUFFIX)
    scan = Scan(file, position=0, end=file.size, next_offset=base).headers_only()
    for _ in scan:
        pass
    place = f"{directory.path}/{file.name}"
    file.close()
    if scan.reason is not None:
        raise CorruptError(file=place, position=scan.position, reason=scan.reason)
    return scan.next_offset
