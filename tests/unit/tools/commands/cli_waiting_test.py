"""When all is in sync: by the word of every broker, for one hears of a change before another."""

from dataclasses import replace

from harness.machines.plans import view_of
from tidelog.clients.cluster_view import ClusterView
from tidelog.tools.waiting import late_by_any


def shrunk() -> ClusterView:
    view = view_of(0)
    topic = view.topics["t"]
    view.topics["t"] = replace(topic, partitions={0: replace(topic.partitions[0], isr=(0,))})
    return view


def test_all_is_in_sync_once_every_broker_says_so() -> None:
    assert late_by_any({0: view_of(0), 1: view_of(0)}, ["t"]) is None


def test_one_broker_that_has_heard_of_a_smaller_set_is_believed() -> None:
    late = late_by_any({0: view_of(0), 1: shrunk()}, ["t"])
    assert late == "t-0 is not in sync: it lacks broker 1"


def test_a_topic_that_one_broker_has_not_heard_of_is_waited_for() -> None:
    late = late_by_any({0: view_of(0), 1: ClusterView()}, ["t"])
    assert late == "broker 1 has not heard of topic t yet"


def test_a_broker_that_does_not_answer_may_know_better() -> None:
    assert late_by_any({0: view_of(0), 1: None}, ["t"]) == "broker 1 does not answer"
    assert late_by_any({}, ["t"]) == "the cluster names no broker"
