"""Up to where a replica answers for its log."""

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW, TOPIC_ID, batch, flush, open_logs, produce
from tidelog.kernel.ids import NO_OFFSET, Partition
from tidelog.node.log.flush_policy import FlushRules
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of
from tidelog.node.replica.replicas import Replica

COMMIT = FlushRules(commit=True)


def replica_of(flush_rules: FlushRules) -> Replica:
    """Two records are in its log, and none of them is flushed."""
    logs = open_logs(MemoryDisk().directory())
    settings = LogSettings(flush=flush_rules)
    log = logs.create("t", 0, TOPIC_ID, settings)
    produce(log, batch(2))
    return Replica("t", Partition(0), TOPIC_ID, log, rules_of(settings), policy=flush_rules)


def test_it_answers_for_all_it_wrote_where_nobody_asks_for_a_flush() -> None:
    assert replica_of(FlushRules()).vouched == 2


def test_a_new_role_answers_for_nothing_before_all_there_was_is_flushed() -> None:
    replica = replica_of(COMMIT)
    replica.begin_vouching(NOW)
    assert replica.vouched == NO_OFFSET
    flush(replica.log)
    assert replica.vouched == 2


def test_what_comes_after_that_is_answered_for_once_it_is_flushed() -> None:
    replica = replica_of(COMMIT)
    replica.begin_vouching(NOW)
    flush(replica.log)
    produce(replica.log, batch(3))
    assert replica.vouched == 2
    flush(replica.log)
    assert replica.vouched == 5


def test_after_a_cut_it_answers_for_what_is_left_of_what_was_flushed() -> None:
    """What its role began with is not there any more, so nothing of that is waited for."""
    replica = replica_of(COMMIT)
    flush(replica.log)
    produce(replica.log, batch(3))
    replica.begin_vouching(NOW)
    assert replica.vouched == NO_OFFSET
    replica.log.truncate_to(2)
    assert replica.vouched == 2
