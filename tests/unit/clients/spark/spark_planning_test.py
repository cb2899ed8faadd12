"""What a batch reads: the partitions there are, where ranges begin and end, what filters leave."""

import datetime as dt

import pytest

from harness.machines.toy_topics import Log, ToyTopics, at
from tidelog.spark.options import Mode, OptionError, source_options
from tidelog.spark.planning import BatchPlan, plan_batch
from tidelog.spark.pushdown import Condition, Pushed, pushed_by


def planned(toy: ToyTopics, pushed: Pushed | None = None, /, **given: str) -> BatchPlan:
    named = {name.replace("_", "."): value for name, value in given.items()}
    if not {"assign", "subscribePattern"} & set(named):
        named.setdefault("subscribe", "t")
    options = source_options({"kafka.bootstrap.servers": "b0:9092", **named}, Mode.BATCH)
    client = toy.client()
    return client.run(plan_batch(client.view, options, pushed or Pushed()))


def edges(plan: BatchPlan) -> list[tuple[str, int, int, int]]:
    return [(one.topic, one.partition, one.start, one.end) for one in plan.ranges]


def two() -> ToyTopics:
    return ToyTopics({"t": [Log(10, 20), Log(0, 5)], "u": [Log(0, 3)], "__internal": [Log(0, 9)]})


def test_a_batch_reads_all_that_there_is() -> None:
    assert edges(planned(two())) == [("t", 0, 10, 20), ("t", 1, 0, 5)]


def test_topics_are_found_by_name_by_pattern_or_by_partition() -> None:
    assert edges(planned(two(), subscribe="t,u"))[2:] == [("u", 0, 0, 3)]
    assert edges(planned(two(), subscribePattern="[u-z]|__.*")) == [("u", 0, 0, 3)]
    assert edges(planned(two(), assign='{"t":[1]}')) == [("t", 1, 0, 5)]


@pytest.mark.parametrize("given", [{"subscribe": "t,nix"}, {"assign": '{"nix":[0],"t":[0]}'}])
def test_what_is_not_there_is_an_error(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="nix: no such topic"):
        planned(two(), **given)


def test_ranges_begin_and_end_where_the_options_say() -> None:
    given = {"startingOffsets": '{"t":{"0":12,"1":-2}}', "endingOffsets": '{"t":{"0":-1,"1":4}}'}
    assert edges(planned(two(), **given)) == [("t", 0, 12, 20), ("t", 1, 0, 4)]


def test_offsets_by_partition_name_each_partition_and_no_other() -> None:
    with pytest.raises(OptionError, match="t-1 is missing"):
        planned(two(), startingOffsets='{"t":{"0":12}}')
    with pytest.raises(OptionError, match="u-0, which is not read"):
        planned(two(), startingOffsets='{"t":{"0":12,"1":0},"u":{"0":1}}')


def test_a_timestamp_is_the_first_record_that_is_not_older() -> None:
    given = {"startingTimestamp": "1500", "endingTimestamp": "14001"}
    assert edges(planned(two(), **given)) == [("t", 0, 10, 15), ("t", 1, 2, 5)]


def test_times_are_those_of_records_also_where_transactions_ended_later() -> None:
    markers = {12: 5_000, 19: 5_000}
    toy = ToyTopics({"t": [Log(10, 20, markers=markers)]})
    assert edges(planned(toy, startingTimestamp="15000")) == [("t", 0, 15, 20)]
    assert edges(planned(toy, endingTimestamp="15000")) == [("t", 0, 10, 15)]
    with pytest.raises(OptionError, match="no record of t-0 is as young"):
        planned(toy, startingTimestamp="19000")


def test_a_start_for_which_no_record_is_young_enough_fails_or_is_the_end() -> None:
    with pytest.raises(OptionError, match="no record of t-1 is as young"):
        planned(two(), startingTimestamp="6000")
    given = {"startingTimestamp": "6000", "startingOffsetsByTimestampStrategy": "latest"}
    assert edges(planned(two(), **given)) == [("t", 0, 10, 20)]


def test_offsets_that_are_gone_or_were_never_there_are_losses() -> None:
    given = {"startingOffsets": '{"t":{"0":7,"1":0}}', "endingOffsets": '{"t":{"0":20,"1":9}}'}
    found = planned(two(), **given).losses
    assert [(one.partition, one.wanted, one.earliest) for one in found] == [
        (at(0), 7, 10),
        (at(1), 9, 0),
    ]


def test_ranges_are_cut_into_tasks() -> None:
    assert len(planned(two(), minPartitions="6").ranges) == 6
    assert max(one.size for one in planned(two(), maxRecordsPerPartition="3").ranges) == 3


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        ([Condition("partition", "=", 1)], [("t", 1, 0, 5)]),
        ([Condition("partition", "in", (0, 7))], [("t", 0, 10, 20)]),
        ([Condition("topic", "=", "u")], []),
        ([Condition("offset", ">=", 12)], [("t", 0, 12, 20)]),
        (
            [Condition("offset", ">", 3), Condition("offset", "<", 12)],
            [("t", 0, 10, 12), ("t", 1, 4, 5)],
        ),
        ([Condition("offset", "=", 2)], [("t", 1, 2, 3)]),
        ([Condition("offset", "<=", 10)], [("t", 0, 10, 11), ("t", 1, 0, 5)]),
        ([Condition("offset", "in", (3, 1)), Condition("partition", "=", 1)], [("t", 1, 1, 4)]),
        ([Condition("offset", "in", (12, None))], [("t", 0, 12, 13)]),
        ([Condition("offset", "in", (None,))], [("t", 0, 10, 20), ("t", 1, 0, 5)]),
        ([Condition("offset", ">", None)], [("t", 0, 10, 20), ("t", 1, 0, 5)]),
        ([Condition("partition", "in", (1, None))], [("t", 1, 0, 5)]),
        ([Condition("value", "=", b"x")], [("t", 0, 10, 20), ("t", 1, 0, 5)]),
        ([Condition("partition", ">", 0)], [("t", 0, 10, 20), ("t", 1, 0, 5)]),
    ],
)
def test_filters_narrow_what_is_read(
    conditions: list[Condition], left: list[tuple[str, int, int, int]]
) -> None:
    assert edges(planned(two(), pushed_by(conditions))) == left


def test_a_filter_on_the_time_is_a_lower_bound_only() -> None:
    then = dt.datetime.fromtimestamp(3, dt.UTC)
    later = Condition("timestamp", ">=", then)
    assert edges(planned(two(), pushed_by([later]))) == [("t", 0, 10, 20), ("t", 1, 3, 5)]
    assert edges(planned(two(), pushed_by([Condition("timestamp", "<", then)]))) == edges(
        planned(two())
    )
    far = Condition("timestamp", ">", dt.datetime.fromtimestamp(99, dt.UTC))
    assert edges(planned(two(), pushed_by([far, later]))) == []


@pytest.mark.parametrize("milliseconds", [-1, -3, -5, -6, -315_619_200_000])
@pytest.mark.parametrize("comparison", [">", ">=", "="])
def test_a_filter_on_a_time_before_1970_narrows_nothing(milliseconds: int, comparison: str) -> None:
    then = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)
    assert pushed_by([Condition("timestamp", comparison, then)]) == Pushed()


def test_a_filter_on_the_time_keeps_the_millisecond_that_it_lies_in() -> None:
    then = dt.datetime(2023, 11, 14, 22, 13, 20, 122_999, tzinfo=dt.UTC)
    assert pushed_by([Condition("timestamp", ">", then)]).not_before_ms == 1_700_000_000_122


def test_a_range_that_ends_before_it_begins_is_refused_and_both_offsets_are_named() -> None:
    given = {"startingOffsets": '{"t":{"0":13,"1":0}}', "endingOffsets": '{"t":{"0":11,"1":0}}'}
    with pytest.raises(OptionError, match=r"t-0 would begin at offset 13 .* end at offset 11"):
        planned(two(), **given)
    with pytest.raises(OptionError, match=r"t-1 would begin at offset 3 .* end at offset 2"):
        planned(two(), startingTimestamp="3000", endingTimestamp="2000")
    with pytest.raises(OptionError, match=r"t-0 would begin at offset 10 .* end at offset 5"):
        planned(two(), endingOffsets='{"t":{"0":5,"1":2}}')


def test_a_range_may_be_empty() -> None:
    given = {"startingOffsets": '{"t":{"0":13,"1":0}}', "endingOffsets": '{"t":{"0":13,"1":0}}'}
    assert edges(planned(two(), **given)) == []


def test_a_start_beyond_the_end_of_the_log_is_a_loss_where_the_end_is_the_logs() -> None:
    found = planned(two(), startingOffsets='{"t":{"0":25,"1":0}}')
    assert [(one.partition, one.wanted) for one in found.losses] == [(at(0), 25)]


def test_a_partition_that_is_not_there_is_named_by_its_number() -> None:
    with pytest.raises(OptionError, match="t-7: no such topic or partition"):
        planned(two(), assign='{"t":[0,7]}')
