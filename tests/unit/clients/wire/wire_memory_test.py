"""How much memory a request takes that was read."""

from tidelog.kernel.limits import ELEMENT_BYTES
from tidelog.kernel.steps import at_once
from tidelog.wire.memory import NUMBER_BYTES, memory_of
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.messages import k09_offset_fetch as k09
from tidelog.wire.messages import k10_find_coordinator as k10


def test_structs_and_strings_are_counted_by_their_number() -> None:
    rows = [k01.FetchPartition(partition=at) for at in range(10)]
    topics = [k01.FetchTopic(topic=name, partitions=rows) for name in "ab"]
    assert at_once(memory_of(k01.FetchRequest(topics=topics))) == 22 * ELEMENT_BYTES
    keys = k10.FindCoordinatorRequest(coordinator_keys=["a", "b"])
    assert at_once(memory_of(keys)) == 2 * ELEMENT_BYTES


def test_a_number_counts_as_what_it_takes() -> None:
    topic = k09.OffsetFetchRequestTopics(name="t", partition_indexes=list(range(1_000)))
    group = k09.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    request = k09.OffsetFetchRequest(groups=[group])
    assert at_once(memory_of(request)) == 2 * ELEMENT_BYTES + 1_000 * NUMBER_BYTES


def test_many_structs_with_lists_are_counted_in_steps() -> None:
    topics = [k01.FetchTopic(topic="t", partitions=[]) for _ in range(30_000)]
    assert len([*memory_of(k01.FetchRequest(topics=topics))]) >= 3
