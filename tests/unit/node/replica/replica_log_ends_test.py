"""What a broker tells of partitions that nobody leads."""

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, open_logs, produce
from harness.logs.one_log import robbed
from tidelog.kernel.ids import NO_LEADER, NO_OFFSET, BrokerId, Epoch, Offset, Partition
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of
from tidelog.node.metadata.image import TopicView
from tidelog.node.replica.log_ends import log_ends
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.wire.control import LogEnd
from tidelog.wire.metadata_records import PartitionView

SETTINGS = LogSettings()


def test_an_end_is_told_with_its_epoch_and_a_log_that_is_not_there_has_none() -> None:
    view = PartitionView(
        replicas=(BrokerId(0),), isr=(), elr=(BrokerId(0),), leader=NO_LEADER, leader_epoch=Epoch(7)
    )
    topic = TopicView("t", TOPIC_ID, partitions=[view, view])
    log = open_logs(MemoryDisk().directory()).create("t", 0, TOPIC_ID, SETTINGS)
    log.begin_epoch(Epoch(5))
    produce(log, batch(3, timestamp=NOW_MS), epoch=5)
    replicas = Replicas()
    replicas.add(Replica("t", Partition(0), TOPIC_ID, log, rules_of(SETTINGS), kept=Offset(2)))
    waters = {("t", Partition(0)): Offset(9)}
    assert log_ends([(topic, 0), (topic, 1)], replicas, waters.__getitem__) == (
        LogEnd(TOPIC_ID, 0, Epoch(7), Epoch(5), Offset(3), Offset(9)),
        LogEnd(TOPIC_ID, 1, Epoch(7), Epoch(-1), NO_OFFSET, NO_OFFSET),
    )


def test_a_log_that_lost_its_front_tells_what_is_missing_and_not_its_start_as_committed() -> None:
    _, log = robbed()
    replicas = Replicas()
    replicas.add(Replica("t", Partition(0), TOPIC_ID, log, rules_of(SETTINGS), kept=Offset(10)))
    view = PartitionView(
        replicas=(BrokerId(0),), isr=(), elr=(), leader=NO_LEADER, leader_epoch=Epoch(7)
    )
    topic = TopicView("t", TOPIC_ID, partitions=[view])
    (told,) = log_ends([(topic, 0)], replicas, lambda _key: Offset(4))
    assert (told.start, told.missing, told.end, told.high_watermark) == (10, 10, 24, 4)
