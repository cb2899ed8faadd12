"""A transactional producer out of single requests, each sent when and where a test says."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self

from harness.clients.confluent import Confluent
from harness.clients.facts import fresh_topic
from harness.clients.fetch_raw import FetchRefusedError
from harness.clients.produce_raw import batch_of
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import until
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.records import Transaction
from tidelog.node.groups.placement import partition_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.messages import k02_list_offsets as k02
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.messages import k09_offset_fetch as k09
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k25_add_offsets_to_txn as k25
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.records import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    Origin,
    iterate_batches,
    iterate_records,
)
from tidelog.wire.transactions import STATE_TOPIC

PRODUCE, FETCH, LIST_OFFSETS = 11, 11, 7
FETCH_BYTES = 1 << 22
ADDING_PRODUCE, BUMPING_END = 12, 5
"""From these versions on, version 2 of transactions is meant."""
LATEST = -1
READ_COMMITTED = 1
AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Clients try again on these."""
LATE = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""What whoever is too slow hears."""
_SHORT_MS = (200, 2_000, 8_000)
"""For a transaction whose time runs out once it has written."""


def coordinator(bootstrap: str, key: str, kind: int = 1) -> str:
    """Whom to ask about a transactional id; about a group where `kind` is 0."""
    found: list[k10.Coordinator] = []

    def look() -> bool:
        with RawClient(bootstrap) as client:
            request = k10.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            (row,) = client.ask(k10.API, 4, request).coordinators
        found[:] = [row]
        return not row.error_code

    until(look, f"a coordinator of {key}")
    return f"{found[0].host}:{found[0].port}"


def leader(bootstrap: str, topic: str, partition: int = 0) -> str:
    """Who leads a partition."""
    with RawClient(bootstrap) as client:
        request = k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name=topic)])
        answer = client.ask(k03.API, 9, request)
    row = answer.topics[0].partitions[partition]
    addresses = {one.node_id: f"{one.host}:{one.port}" for one in answer.brokers}
    return addresses[row.leader_id]


def known_topic(bootstrap: str) -> str:
    """A new one, its name: each broker knows it, and leads what it shall lead. Who asks by single
    requests is told that there is no such topic by a broker that is held up for a moment."""
    name = fresh_topic()
    Confluent(bootstrap).create_topic(name)
    until_known(bootstrap, name)
    return name


def until_known(bootstrap: str, topic: str) -> None:
    for address in bootstrap.split(","):
        until(partial(_knows, address, topic), f"{address} knows {topic}")


def _knows(address: str, topic: str) -> bool:
    """One broker, and the leader of the first partition."""
    request = k03.MetadataRequest(
        topics=[k03.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    with RawClient(address) as client:
        (row,) = client.ask(k03.API, 9, request).topics
    if row.error_code or any(one.error_code for one in row.partitions):
        return False
    try:
        end_of(address, topic, isolation=0)
    except AssertionError:
        return False
    return True


def said_in_the_end(ask: Callable[[], ErrorCode]) -> ErrorCode:
    """As clients hear it, who try again: above all while the last transaction is not complete,
    whose end is answered after a tenth of a second at the latest."""
    found: list[ErrorCode] = []

    def is_said() -> bool:
        found[:] = [ask()]
        return found[0] not in AGAIN

    until(is_said, "an answer other than to try again")
    return found[0]


class RawProducer:
    """One life of a producer; its requests go to whoever leads or coordinates then."""

    def __init__(self, bootstrap: str, name: str, timeout_ms: int = 60_000) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.producer_id, self.epoch = -1, -1
        self._timeout_ms = timeout_ms
        self._sequences: dict[tuple[str, int], int] = {}

    def ask(self, api: Any, version: int, request: object) -> Any:
        with RawClient(coordinator(self.bootstrap, self.name)) as client:
            return client.ask(api, version, request)

    def init(self, *, says_who: bool = False) -> Self:
        """Begin anew; or under the next epoch, where it says who it was until now."""
        answers: list[k22.InitProducerIdResponse] = []
        was = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if says_who else {}

        def done() -> bool:
            request = k22.InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=self._timeout_ms, **was
            )
            answers.append(self.ask(k22.API, 4, request))
            return answers[-1].error_code not in AGAIN

        until(done, f"an id for {self.name}")
        assert not answers[-1].error_code, ErrorCode(answers[-1].error_code)
        self.producer_id, self.epoch = answers[-1].producer_id, answers[-1].producer_epoch
        self._sequences.clear()
        return self

    def add(self, topic: str, partition: int = 0) -> ErrorCode:
        return self.added(self.add_request(topic, partition))

    def added(self, request: k24.AddPartitionsToTxnRequest) -> ErrorCode:
        (topic_row,) = self.ask(k24.API, 3, request).results_by_topic_v3_and_below
        return ErrorCode(topic_row.results_by_partition[0].partition_error_code)

    def add_request(self, topic: str, partition: int = 0) -> k24.AddPartitionsToTxnRequest:
        """As it is now; it may be sent at any time."""
        return k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )

    def batch(self, topic: str, value: bytes, partition: int = 0, timestamp: int = -1) -> bytearray:
        """The next one, which may be sent at any time."""
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + 1
        origin = Origin(self.producer_id, self.epoch, sequence, TRANSACTIONAL_BIT)
        return batch_of(value, timestamp=timestamp, origin=origin)

    def request(self, topic: str, batch: bytearray, partition: int = 0) -> k00.ProduceRequest:
        data = k00.PartitionProduceData(index=partition, records=memoryview(batch))
        return k00.ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[k00.TopicProduceData(name=topic, partition_data=[data])],
        )

    def send(
        self, topic: str, batch: bytearray, partition: int = 0, version: int = PRODUCE
    ) -> ErrorCode:
        with RawClient(leader(self.bootstrap, topic, partition)) as client:
            answer = client.ask(k00.API, version, self.request(topic, batch, partition))
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def write(self, topic: str, value: bytes, partition: int = 0) -> None:
        """As a client does it: the partition first, then the batch."""
        assert said_in_the_end(partial(self.add, topic, partition)) is ErrorCode.NONE
        assert self.send(topic, self.batch(topic, value, partition), partition) is ErrorCode.NONE

    def add_offsets(self, group: str) -> ErrorCode:
        request = k25.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        found: list[ErrorCode] = []

        def done() -> bool:
            """The first one of a cluster makes the topic that keeps groups."""
            found[:] = [ErrorCode(self.ask(k25.API, 3, request).error_code)]
            return found[0] is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        until(done, f"an answer about {group}")
        return found[0]

    def commit_offset(self, group: str, topic: str, offset: int, version: int = 4) -> ErrorCode:
        row = k28.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = k28.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[k28.TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )

        def said() -> ErrorCode:
            """Whoever is to keep the group may not have heard of it yet, or not read its log."""
            with RawClient(coordinator(self.bootstrap, group, kind=0)) as client:
                answer = client.ask(k28.API, version, request)
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        return said_in_the_end(said)

    def end(self, *, committed: bool, version: int = 3) -> ErrorCode:
        answer = self.ask(k26.API, version, self.end_request(committed=committed))
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE and version >= BUMPING_END:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return code

    def end_request(self, *, committed: bool) -> k26.EndTxnRequest:
        """As it is now; it may be sent at any time."""
        return k26.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )


def too_slow(bootstrap: str) -> tuple[RawProducer, str]:
    """One that has written to a topic, and whose time will be up in a moment. On a busy machine
    it may be before: then another one gets more of it."""
    for timeout_ms in _SHORT_MS:
        topic = known_topic(bootstrap)
        writer = RawProducer(bootstrap, f"{topic}-id", timeout_ms).init()
        batch = writer.batch(topic, b"too slow")
        code = said_in_the_end(partial(writer.add, topic)) or writer.send(topic, batch)
        if code is ErrorCode.NONE:
            return writer, topic
        assert code in LATE, code
    raise AssertionError(f"not even {_SHORT_MS[-1]} ms are enough to write one batch")


def end_of(bootstrap: str, topic: str, isolation: int = READ_COMMITTED, partition: int = 0) -> int:
    """Where readers of that kind come to the end of a partition."""
    row = k02.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    request = k02.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[k02.ListOffsetsTopic(name=topic, partitions=[row])],
    )
    with RawClient(leader(bootstrap, topic, partition)) as client:
        answer = client.ask(k02.API, LIST_OFFSETS, request)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise FetchRefusedError(ErrorCode(found.error_code))
    return int(found.offset)


def committed_offset(bootstrap: str, group: str, topic: str) -> int | ErrorCode:
    """Of partition 0, for a reader that wants only what no open transaction may change."""
    wanted = k09.OffsetFetchRequestGroup(
        group_id=group,
        topics=[k09.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
    )
    request = k09.OffsetFetchRequest(groups=[wanted], require_stable=True)
    with RawClient(coordinator(bootstrap, group, kind=0)) as client:
        (found,) = client.ask(k09.API, 8, request).groups
    if found.error_code:
        return ErrorCode(found.error_code)
    row = found.topics[0].partitions[0]
    return ErrorCode(row.error_code) if row.error_code else int(row.committed_offset)


def batches(
    bootstrap: str, topic: str, partition: int = 0
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """All that a partition holds, markers too."""
    offset = 0
    with RawClient(leader(bootstrap, topic, partition)) as client:
        while True:
            row = k01.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
            )
            request = k01.FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                topics=[k01.FetchTopic(topic=topic, partitions=[row])],
            )
            answer = client.ask(k01.API, FETCH, request)
            found = answer.responses[0].partitions[0].records
            if not found:
                return
            for header, batch in iterate_batches(memoryview(found)):
                if header.base_offset >= offset:
                    yield header, batch
                offset = max(offset, header.next_offset)


def recorded(bootstrap: str, name: str) -> list[Transaction]:
    """What the log says of a transactional id, record by record."""
    with RawClient(bootstrap) as client:
        request = k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name=STATE_TOPIC)])
        (topic,) = client.ask(k03.API, 9, request).topics
    partition = partition_of(name, len(topic.partitions))
    return [
        found.value
        for header, batch in batches(bootstrap, STATE_TOPIC, partition)
        if not header.is_control
        for one in iterate_records(batch)
        for found in (records.read(one.key or b"", one.value),)
        if found is not None and found.transactional_id == name and found.value is not None
    ]
