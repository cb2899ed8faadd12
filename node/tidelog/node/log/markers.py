"""A leader's log takes the markers that end transactions."""

from tidelog.kernel.instant import Instant
from tidelog.node.log.contracts import Appended
from tidelog.node.log.log import Log
from tidelog.node.log.validation import NO_TIMESTAMP
from tidelog.wire.records import place_batch, read_header, read_marker, stamp_append_time


def append_marker(
    log: Log,
    now: Instant,
    now_ms: int,
    view: memoryview,
    leader_epoch: int,
    high_watermark: int,
) -> Appended:
    """Append a marker as `build_marker` made it.

    Rejected where its producer is of the past; whether its coordinator is, the caller has looked
    at. One that is there already is not appended again. It is taken in as a follower takes it, so
    that both know the same of it.
    """
    marker = read_marker(read_header(view), view)
    assert marker is not None, "a marker"
    there = log.producers.check_marker(marker)
    if there is not None:
        return Appended(there.offset, there.offset, NO_TIMESTAMP, log.start, duplicate=True)
    assert leader_epoch >= log.latest_epoch, "a leader never goes back"
    if log.settings.log_append_time:
        stamp_append_time(view, now_ms)
    place_batch(view, 0, base_offset=log.end, leader_epoch=leader_epoch)
    return log.append_as_follower(now, now_ms, view, high_watermark)
