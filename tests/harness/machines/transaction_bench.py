"""A broker's handlers in transactions: what is produced, what the coordinator is asked and says."""

from typing import Any

from harness.clients.produce_raw import batch_of
from harness.machines.brokers import FakeClient, HandlerBench
from harness.machines.group_bench import Asked
from tidelog.kernel.ids import Partition
from tidelog.node.log.log import Log
from tidelog.node.log.markers import append_marker
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_request, encode_response, joined
from tidelog.wire.header import decode_request_header
from tidelog.wire.messages import k00_produce
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.records import TRANSACTIONAL_BIT, EndMarker, Origin, build_marker

ID = "id"
PRODUCER = 7
START_MS = 1_700_000_000_000


def transactional(
    sequence: int = 0, *, producer_id: int = PRODUCER, epoch: int = 0, plain: bool = False
) -> bytearray:
    """A batch of one record."""
    flags = 0 if plain else TRANSACTIONAL_BIT
    origin = Origin(producer_id, epoch, sequence, flags)
    return batch_of(b"value", timestamp=START_MS, origin=origin)


def request_of(
    *batches: tuple[str, int, bytearray | None], name: str | None = ID, acks: int = -1
) -> k00_produce.ProduceRequest:
    """Topic, partition and batch, in this order."""
    return k00_produce.ProduceRequest(
        transactional_id=name,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            k00_produce.TopicProduceData(
                name=topic,
                partition_data=[
                    k00_produce.PartitionProduceData(
                        index=index, records=None if batch is None else memoryview(batch)
                    )
                ],
            )
            for topic, index, batch in batches
        ],
    )


def start_producing(
    bench: HandlerBench,
    *batches: tuple[str, int, bytearray | None],
    version: int = 11,
    name: str | None = ID,
    acks: int = -1,
    client: FakeClient | None = None,
) -> Asked:
    asked = Asked(k00_produce.API, version)
    asked.client = client or asked.client
    request = request_of(*batches, name=name, acks=acks)
    bench.begin(asked.client, k00_produce.API, version, request)
    return asked


def codes(answer: k00_produce.ProduceResponse | None) -> list[int] | None:
    """Of each partition, in order; None while there is no answer."""
    if answer is None:
        return None
    return [row.error_code for topic in answer.responses for row in topic.partition_responses]


def question(bench: HandlerBench, at: int = -1) -> k24.AddPartitionsToTxnTransaction:
    """What the transaction coordinator was asked about a transaction."""
    key, frame = bench.transactions.forwarded[at]
    assert key == k24.API.key
    view = memoryview(frame)
    header = decode_request_header(view, {24: k24.API})
    request = decode_request(k24.API, header.version, view, header.body_position)
    (transaction,) = request.transactions
    found: k24.AddPartitionsToTxnTransaction = transaction
    return found


def answer(bench: HandlerBench, code: int | dict[tuple[str, int], int] = 0, at: int = -1) -> None:
    """The coordinator's word: one code, or one for each partition."""
    asked = question(bench, at)
    codes = {
        (topic.name, index): code if isinstance(code, int) else code[topic.name, index]
        for topic in asked.topics
        for index in topic.partitions
    }
    bench.transactions.done[at](answer_frame(codes))


def answer_frame(codes: dict[tuple[str, int], int]) -> bytes:
    response = k24.AddPartitionsToTxnResponse(
        results_by_transaction=[
            k24.AddPartitionsToTxnResult(
                transactional_id=ID,
                topic_results=[
                    k24.AddPartitionsToTxnTopicResult(
                        name=name,
                        results_by_partition=[
                            k24.AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code
                            )
                        ],
                    )
                    for (name, index), code in codes.items()
                ],
            )
        ]
    )
    return joined(encode_response(k24.API, 4, 0, response))[4:]


def log_of(bench: HandlerBench, topic: str = "t", index: int = 0) -> Log:
    replica = bench.broker.replicas.get((topic, Partition(index)))
    assert replica is not None
    return replica.log


def end_transaction(
    bench: HandlerBench,
    topic: str = "t",
    index: int = 0,
    *,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    committed: bool = True,
) -> None:
    """A marker, as the broker writes it for the coordinator."""
    replica, leader = bench.broker.replicas.led(topic, index)
    batch = memoryview(build_marker(EndMarker(producer_id, epoch, 0, committed), START_MS))
    append_marker(replica.log, bench.now, 0, batch, leader.epoch, leader.high_watermark)
    bench.replication.appended(bench.now, replica, batch)


def ended(answer: Any) -> ErrorCode:
    found = codes(answer)
    assert found is not None, "no answer yet"
    (code,) = found
    return ErrorCode(code)
