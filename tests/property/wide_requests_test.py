"""A wide request that is decided in pieces has the answer, and the effect, of one decision.

Drawn requests name topics twice, wrongly, and in ways that collide.
"""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.machines.brokers import ME
from harness.machines.controllers import ONE, Controlled, topic
from harness.machines.deciding import Deciding
from tidelog.kernel import limits
from tidelog.wire.messages import k19_create_topics as k19
from tidelog.wire.messages import k20_delete_topics as k20
from tidelog.wire.messages import k33_alter_configs as k33
from tidelog.wire.messages import k37_create_partitions as k37
from tidelog.wire.messages import k43_elect_leaders as k43
from tidelog.wire.messages import k44_incremental_alter_configs as k44
from tidelog.wire.messages import k45_alter_partition_reassignments as k45

KNOWN = ("n0", "n1", "n2", "n3", "a.b")
NAMES = st.sampled_from((*KNOWN, "n4", "n5", "a_b", "x.y_z", "x_y.z", "", "not a name"))
VALUES = st.sampled_from(("1000", "compact", "x", None))
SETTINGS = st.sampled_from(("retention.ms", "cleanup.policy", "min.insync.replicas", "none"))

Drawn = tuple[Any, int, object]
"""An API, a version, and a request."""


def some(one: st.SearchStrategy[Any], most: int = 30) -> st.SearchStrategy[list[Any]]:
    return st.lists(one, max_size=most)


def numbers(*values: int) -> st.SearchStrategy[int]:
    return st.sampled_from(values)


def of(api: Any, versions: range, **fields: Any) -> st.SearchStrategy[Drawn]:
    request = st.builds(api.request, **fields)
    return st.tuples(st.just(api), st.sampled_from(versions), request)


CREATED = st.builds(
    k19.CreatableTopic,
    name=NAMES,
    num_partitions=numbers(-5, -1, 0, 1, 3, 30),
    replication_factor=numbers(-1, 1, 2, 3),
    configs=some(st.builds(k19.CreatableTopicConfig, name=SETTINGS, value=VALUES), 2),
)
GROWN = st.builds(
    k37.CreatePartitionsTopic,
    name=NAMES,
    count=numbers(-1, 0, 1, 2, 4, 40),
    assignments=st.none() | some(st.just(k37.CreatePartitionsAssignment(broker_ids=[ME])), 3),
)
NAMED = st.builds(
    k43.TopicPartitions,
    topic=NAMES,
    partitions=st.lists(numbers(-1, 0, 1, 9), min_size=1, max_size=4),
)
MOVED = st.builds(
    k45.ReassignablePartition,
    partition_index=numbers(-1, 0, 1, 9),
    replicas=st.none() | some(numbers(ME, ONE, 9), 3),
)
MOVES = st.builds(k45.ReassignableTopic, name=NAMES, partitions=some(MOVED, 5))
WHOSE: dict[str, Any] = {"resource_type": numbers(2, 2, 2, 4, 32, 99), "resource_name": NAMES}
REPLACED = st.builds(k33.AlterableConfig, name=SETTINGS, value=VALUES)
ALTERED = st.builds(
    k44.AlterableConfig, name=SETTINGS, value=VALUES, config_operation=numbers(0, 1, 2, 3, 7)
)
REQUESTS = {
    "CreateTopics": of(k19.API, range(2, 8), topics=some(CREATED), validate_only=st.booleans()),
    "DeleteTopics by name": of(k20.API, range(1, 6), topic_names=some(NAMES, 60)),
    "DeleteTopics": of(
        k20.API, range(6, 7), topics=some(st.builds(k20.DeleteTopicState, name=NAMES), 60)
    ),
    "CreatePartitions": of(k37.API, range(4), topics=some(GROWN), validate_only=st.booleans()),
    "ElectLeaders": of(
        k43.API,
        range(1, 3),
        election_type=numbers(0, 1),
        topic_partitions=st.none() | some(NAMED),
    ),
    "AlterPartitionReassignments": of(k45.API, range(2), topics=some(MOVES)),
    "AlterConfigs": of(
        k33.API,
        range(3),
        resources=some(st.builds(k33.AlterConfigsResource, configs=some(REPLACED, 3), **WHOSE)),
    ),
    "IncrementalAlterConfigs": of(
        k44.API,
        range(2),
        resources=some(st.builds(k44.AlterConfigsResource, configs=some(ALTERED, 3), **WHOSE)),
    ),
}


def asked(folder: Path, drawn: Drawn) -> tuple[str, object]:
    """The answer without ids, which are random; and what there is then."""
    both = Deciding(folder)
    both.controller = Controlled(ME, ONE)
    for at, name in enumerate(KNOWN):
        both.controller.create(topic(name, partitions=1 + at % 2, replicas=1 + at % 2))
        both.bench.topic(name, 1 + at % 2)
    answer = both.ask(*drawn)
    image = both.controller.image
    there = {
        name: (view.configs, len(view.partitions)) for name, view in sorted(image.names.items())
    }
    return re.sub(r"topic_id=b[^,]*", "", repr(answer)), there


@pytest.mark.parametrize("kind", REQUESTS)
@settings(max_examples=15)
@given(data=st.data())
def test_pieces_have_the_answer_of_one_decision(kind: str, data: st.DataObject) -> None:
    drawn = data.draw(REQUESTS[kind])
    outcomes = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for most in (limits.FORWARDED_WEIGHT_MAX, 20):
            patch.setattr(limits, "FORWARDED_WEIGHT_MAX", most)
            outcomes.append(asked(Path(folder) / str(most), drawn))
    assert outcomes[0] == outcomes[1]
