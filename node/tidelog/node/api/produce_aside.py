"""Batches that take long to make ready: to recompress, or to look at their records.

What takes long is decided by what the header says and by what little a batch unpacks to, not by
its size: a few KiB can hold millions of records.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.kernel import limits
from tidelog.kernel.ids import Partition
from tidelog.kernel.steps import Pace, Steps, at_once
from tidelog.node.api.call import Call
from tidelog.node.log.looking import Allowance, cost_at_once
from tidelog.node.log.recompress import recompressed
from tidelog.node.log.validation import (
    BatchRules,
    needs_look,
    validate_in_steps,
    validate_produced,
)
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import REQUEST_FAULTS, ErrorCode, Rejected
from tidelog.wire.messages.k00_produce import PartitionProduceData, ProduceRequest
from tidelog.wire.records import HEADER_BYTES, BatchHeader, read_header

_ZSTD_VERSION: Final = 7


_ROW_BYTES: Final = 512
"""What one batch takes in memory besides its records."""


class Batch(NamedTuple):
    """A batch that may be appended."""

    records: memoryview
    header: BatchHeader


class Work(NamedTuple):
    """A batch that takes long to make ready."""

    data: PartitionProduceData
    rules: BatchRules
    now_ms: int
    version: int


Ready = Mapping[int, Batch | Exception]
"""By the identity of the request's rows, for one partition may stand there twice. An exception says
why there is no batch; it is raised again where its row of the answer is made."""


def long_work(call: Call, request: ProduceRequest) -> list[Work]:
    """Batches for which nobody should wait."""
    replicas = call.broker.replicas
    found: list[Work] = []
    left = limits.RECORDS_AT_ONCE_MAX
    for topic in request.topic_data:
        for data in topic.partition_data:
            replica = replicas.get((topic.name, Partition(data.index)))
            records = data.records
            if replica is None or records is None:
                continue
            cost = _cost(records, replica.rules)
            if cost is not None and cost <= left:
                left -= cost
            else:
                found.append(Work(data, replica.rules, call.now_ms, call.version))
    return found


def is_wide(request: ProduceRequest) -> bool:
    """Whether it has so many batches that other clients have their turn in between."""
    rows = sum(len(topic.partition_data) for topic in request.topic_data)
    return rows > limits.ROWS_PER_STEP


def keep_records(call: Call, request: ProduceRequest) -> None:
    """Copy all there are: the connection's buffer is gone before they are appended."""
    if call.owns_frame:
        return
    rows = [data for topic in request.topic_data for data in topic.partition_data]
    kept = memoryview(bytearray(sum(len(data.records or b"") for data in rows)))
    at = 0
    for data in rows:
        if data.records is not None:
            end = at + len(data.records)
            kept[at:end] = data.records
            data.records, at = kept[at:end], end
    call.keep(len(kept) + _ROW_BYTES * len(rows))


def _cost(records: memoryview, rules: BatchRules) -> int | None:
    """How many records must be looked at; None where it is not known to be little."""
    if len(records) < HEADER_BYTES:
        return 0
    header = read_header(records)
    bits = header.codec_bits
    if rules.codec is not None and bits != rules.codec:
        return None
    if not needs_look(header, rules) or bits > max(Codec):
        return 0  # of an unknown codec it is refused for that
    return cost_at_once(records, header)


def make_ready(work: Sequence[Work]) -> Steps[Ready]:
    """In a thread."""
    allowance, ready = Allowance(), dict[int, Batch | Exception]()
    for one in work:
        try:
            ready[id(one.data)] = yield from _made_ready(one, allowance)
        except REQUEST_FAULTS as fault:
            ready[id(one.data)] = fault
        yield Pace.NEXT
    return ready


def _made_ready(work: Work, allowance: Allowance) -> Steps[Batch]:
    records, rules = work.data.records, work.rules
    assert records is not None
    header = yield from validate_in_steps(records, rules, work.now_ms, allowance)
    _check_version(header, work.version)
    if rules.codec is not None and rules.codec != header.codec_bits:
        return Batch(*(yield from recompressed(records, header, rules, allowance)))
    return Batch(records, header)


def checked(records: memoryview, rules: BatchRules, now_ms: int, version: int) -> Batch:
    """A batch that takes little, as it is to be appended; Rejected where it may not be.

    It takes long where the topic's settings have changed since the request was looked through.
    """
    header = validate_produced(records, rules, now_ms)
    _check_version(header, version)
    if rules.codec is not None and rules.codec != header.codec_bits:
        return Batch(*at_once(recompressed(records, header, rules, Allowance())))
    return Batch(records, header)


def _check_version(header: BatchHeader, version: int) -> None:
    if header.codec_bits == Codec.ZSTD and version < _ZSTD_VERSION:
        raise Rejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7")
