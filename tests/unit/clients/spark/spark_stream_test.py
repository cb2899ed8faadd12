"""A stream's offsets: where it begins, how far each micro-batch goes, what it says of losses."""

import logging

import pytest

from harness.machines.toy_topics import Log, ToyTopics, at
from tidelog.clients.client import Client
from tidelog.kernel.instant import s
from tidelog.spark.loss import DataLossError
from tidelog.spark.offsets import Json
from tidelog.spark.options import Mode, source_options
from tidelog.spark.stream import Stream
from tidelog.wire.errors import ErrorCode, Rejected


class Notebook:
    """Keeps offsets as the file does."""

    def __init__(self) -> None:
        self.offsets: Json | None = None

    def read(self) -> Json | None:
        return self.offsets

    def write(self, offsets: Json) -> None:
        assert self.offsets is None, "written once"
        self.offsets = offsets


def stream_of(
    toy: ToyTopics,
    notebook: Notebook | None = None,
    client: Client | None = None,
    /,
    **given: str,
) -> Stream:
    named = {"kafka.bootstrap.servers": "b0:9092", **given}
    if "subscribePattern" not in named:
        named.setdefault("subscribe", "t")
    options = source_options(named, Mode.STREAM)
    return Stream(options, client or toy.client(), notebook)


def one(earliest: int = 0, latest: int = 0) -> ToyTopics:
    return ToyTopics({"t": [Log(earliest, latest)]})


def test_a_stream_goes_to_the_end_and_stays_where_nothing_comes() -> None:
    toy = one(2, 5)
    stream = stream_of(toy, startingOffsets="earliest")
    assert stream.initial() == {"t": {"0": 2}}
    assert stream.latest({"t": {"0": 2}}) == {"t": {"0": 5}} == stream.report()
    assert stream.latest({"t": {"0": 5}}) == {"t": {"0": 5}}


def test_where_it_begins_stays_though_the_topic_grows() -> None:
    toy = one(0, 5)
    stream = stream_of(toy)
    assert stream.initial() == {"t": {"0": 5}}
    toy.topics["t"][0].latest = 9
    assert stream.initial() == {"t": {"0": 5}}


def test_another_life_begins_where_the_first_began() -> None:
    toy, notebook = one(0, 5), Notebook()
    assert stream_of(toy, notebook).initial() == {"t": {"0": 5}}
    toy.topics["t"][0].latest = 9
    assert stream_of(toy, notebook).initial() == {"t": {"0": 5}}
    assert stream_of(toy).initial() == {"t": {"0": 9}}


@pytest.mark.parametrize("starting", ["latest", '{"t":{"0":-1}}'])
def test_a_stream_that_begins_at_the_end_reads_nothing_before_its_checkpoint_knows_where(
    starting: str,
) -> None:
    toy = one(0, 5)
    stream = stream_of(toy, startingOffsets=starting)
    start = stream.initial()
    toy.topics["t"][0].latest = 9
    end = stream.latest(start)
    assert end == start == {"t": {"0": 5}}
    assert stream.ranges(stream.initial(), end) == []
    assert stream_of(toy, startingOffsets=starting).latest(end) == {"t": {"0": 9}}


def test_a_first_micro_batch_that_is_done_again_by_another_life_reads_the_same() -> None:
    toy = one(0, 5)
    stream = stream_of(toy)
    start = stream.initial()
    toy.topics["t"][0].latest = 9
    end = stream.latest(start)
    assert stream.ranges(start, end) == []
    again = stream_of(toy)
    assert again.ranges(again.initial(), end) == []
    assert again.latest(end) == {"t": {"0": 9}}


def test_whoever_does_the_first_micro_batch_again_where_nothing_came_goes_on_after_it() -> None:
    toy = one(0, 5)
    stream = stream_of(toy)
    end = stream.latest(stream.initial())
    again = stream_of(toy)
    assert again.ranges(again.initial(), end) == []
    toy.topics["t"][0].latest = 9
    assert again.latest(end) == {"t": {"0": 9}}, "the same offset, but not the first micro-batch"


@pytest.mark.parametrize("starting", ["earliest", '{"t":{"0":5}}'])
def test_who_begins_elsewhere_or_keeps_where_reads_at_once(starting: str) -> None:
    toy = one(5, 9)
    stream = stream_of(toy, startingOffsets=starting)
    assert stream.latest(stream.initial()) == {"t": {"0": 9}}
    kept = stream_of(toy, Notebook())
    start = kept.initial()
    toy.topics["t"][0].latest = 12
    assert kept.latest(start) == {"t": {"0": 12}}


def test_partitions_and_topics_that_come_later_are_read_from_their_beginning() -> None:
    toy = one(0, 5)
    stream = stream_of(toy, subscribePattern="t.*")
    toy.topics["t"].append(Log(0, 3))
    toy.topics["t2"] = [Log(4, 6)]
    end = stream.latest({"t": {"0": 5}})
    assert end == {"t": {"0": 5, "1": 3}, "t2": {"0": 6}}
    ranges = stream.ranges({"t": {"0": 5}}, end)
    assert [(r.topic, r.partition, r.start, r.end) for r in ranges] == [
        ("t", 1, 0, 3),
        ("t2", 0, 0, 6),
    ]


def test_a_micro_batch_takes_at_most_its_share() -> None:
    stream = stream_of(one(0, 100), maxOffsetsPerTrigger="30")
    assert stream.latest({"t": {"0": 10}}) == {"t": {"0": 40}}
    assert stream.latest({"t": {"0": 10}}, unlimited=True) == {"t": {"0": 100}}


def test_a_share_of_what_is_new_counts_from_its_earliest_record() -> None:
    stream = stream_of(one(1_000, 1_100), maxOffsetsPerTrigger="30", subscribePattern="t")
    assert stream.latest({}) == {"t": {"0": 1_030}}


def test_a_micro_batch_waits_for_enough_but_not_longer_than_it_may() -> None:
    toy = one(0, 1)
    client = toy.client()
    given = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s"}
    stream = stream_of(toy, None, client, **given)
    assert stream.latest({"t": {"0": 0}}) == {"t": {"0": 1}}, "the first one is not delayed"
    toy.topics["t"][0].latest = 3
    assert stream.latest({"t": {"0": 1}}) == {"t": {"0": 1}}
    network = client.network
    network.poll(type(network.now())(network.now() + s(30)))
    assert stream.latest({"t": {"0": 1}}) == {"t": {"0": 3}}
    toy.topics["t"][0].latest = 13
    assert stream.latest({"t": {"0": 3}}) == {"t": {"0": 13}}


def test_available_now_ends_where_the_topics_ended_when_it_began() -> None:
    toy = one(0, 5)
    stream = stream_of(toy, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="3")
    stream.freeze()
    toy.topics["t"][0].latest = 50
    toy.topics["t"].append(Log(0, 9))
    assert stream.latest({"t": {"0": 0}}) == {"t": {"0": 3}}
    assert stream.latest({"t": {"0": 3}}) == {"t": {"0": 5}}
    assert stream.latest({"t": {"0": 5}}) == {"t": {"0": 5}}


def test_a_log_that_became_shorter_is_a_loss() -> None:
    stream = stream_of(one(0, 5))
    with pytest.raises(DataLossError, match=r"t-0: wanted offset 8, .* the log ends at 5"):
        stream.latest({"t": {"0": 8}})


def test_what_is_not_committed_yet_is_no_loss() -> None:
    toy = ToyTopics({"t": [Log(0, 9, stable=5)]})
    stream = stream_of(toy, **{"kafka.isolation.level": "read_committed"})
    assert stream.latest({"t": {"0": 3}}) == {"t": {"0": 5}}
    assert stream.latest({"t": {"0": 8}}) == {"t": {"0": 8}}
    with pytest.raises(DataLossError, match="the log ends at 9"):
        stream.latest({"t": {"0": 10}})


def test_a_partition_that_is_gone_is_a_loss() -> None:
    stream = stream_of(one(0, 5))
    with pytest.raises(DataLossError, match="t-1: wanted offset 8: the partition is not there"):
        stream.latest({"t": {"0": 5, "1": 8}})


def test_who_can_live_with_losses_is_warned_and_goes_on_to_an_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = stream_of(one(0, 5), failOnDataLoss="false")
    stream.freeze()
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        end = stream.latest({"t": {"0": 8, "1": 3}})
    assert "t-1: wanted offset 3" in caplog.text
    assert end == {"t": {"0": 5, "1": 3}}
    assert stream.ranges({"t": {"0": 8, "1": 3}}, end) == []
    assert stream.latest(end) == end


def test_a_start_that_is_gone_is_a_loss() -> None:
    stream = stream_of(one(3, 5), startingOffsets='{"t":{"0":1}}')
    with pytest.raises(DataLossError, match="has removed 2 offsets"):
        stream.initial()


def test_a_group_is_told_what_is_done_before_the_next_micro_batch_and_after_it() -> None:
    toy = one(0, 5)
    stream = stream_of(toy, commitOffsetsToGroup="g")
    stream.latest({"t": {"0": 2}})
    assert toy.told == {"g": {at(0): 2}}
    stream.committed({"t": {"0": 5}})
    assert toy.told == {"g": {at(0): 5}}


def test_a_group_that_has_members_is_not_touched_silently() -> None:
    toy = one(0, 5)
    toy.code_for_groups = ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(Rejected, match="nobody else may be in the group"):
        stream_of(toy, commitOffsetsToGroup="g").latest({"t": {"0": 2}})


def test_ranges_are_cut_the_same_whatever_the_cluster_says_now() -> None:
    toy = one(0, 100)
    stream = stream_of(toy, minPartitions="4")
    before = stream.ranges({"t": {"0": 0}}, {"t": {"0": 40}})
    toy.topics.clear()
    assert stream.ranges({"t": {"0": 0}}, {"t": {"0": 40}}) == before
    assert [r.size for r in before] == [10, 10, 10, 10]
