"""What people are told of a partition that is not compacted."""

import pytest

from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, Uuid, uuid_text
from tidelog.kernel.instant import Instant
from tidelog.node.ipc.events import FIELDS, Kind, Shape, fields_of
from tidelog.node.ipc.layout import WORDS_PER_SLOT, Role, Slot, Word
from tidelog.node.log.causes import Cause
from tidelog.node.metadata.image import BrokerView, MetadataImage, TopicView
from tidelog.tools.reasons import Code, Known, Place, of_broker, of_partition
from tidelog.tools.supervisor.plan import Name
from tidelog.tools.supervisor.runs import Run
from tidelog.tools.supervisor.status import Seen, document
from tidelog.tools.timeline import Entry
from tidelog.wire.metadata_records import PartitionView, StopKind

ID = Uuid(bytes(range(16)))
OLDER_ID = Uuid(bytes(range(1, 17)))


def entry(
    event: str,
    broker: int,
    second: int,
    *values: int,
    incarnation: int = 1,
    topic: Uuid = ID,
    partition: int = 0,
) -> Entry:
    fields = fields_of(Kind[event.upper()], values)
    place = (partition, uuid_text(topic), "orders")
    return Entry(f"T{second}", f"broker-{broker}", second, incarnation, event, *place, fields)


def failed(
    broker: int, second: int, cause: Cause = Cause.DAMAGED, *, incarnation: int = 1
) -> Entry:
    return entry("not_compacted", broker, second, cause, 3561, incarnation=incarnation)


def known(*events: Entry) -> Known:
    replicas = (BrokerId(0), BrokerId(1))
    view = PartitionView(replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=Epoch(1))
    image = MetadataImage()
    for one in replicas:
        life = (Incarnation(1), Offset(one), "h", 1, None, (), StopKind.CLEAN)
        image.brokers[one] = BrokerView(one, *life, fenced=False)
    image.topics[ID] = image.names["orders"] = TopicView("orders", ID, {}, [view])
    return Known(image=image, states={0: "running", 1: "running"}, events=events)


def sentences(*events: Entry) -> list[str]:
    seen = known(*events)
    found = of_partition(seen, Place(seen.image.names["orders"], 0))
    assert {one.code for one in found} <= {Code.NOT_COMPACTED}
    return [one.sentence for one in found]


def test_a_partition_that_a_broker_cannot_compact_is_named_with_its_cause() -> None:
    (sentence,) = sentences(failed(1, 3))
    assert sentence == (
        "orders-0 is not compacted on broker 1 since T3, so its log grows there: its segment from "
        "offset 3561 on is damaged; compaction is tried again at longer and longer pauses"
    )


def test_the_remedy_for_damage_is_to_look_at_the_files_of_that_replica() -> None:
    seen = known(failed(1, 3))
    (reason,) = of_partition(seen, Place(seen.image.names["orders"], 0))
    assert reason.broker == 1
    assert reason.remedies == ("tidelog log verify orders:0 --broker 1", "tidelog logs broker-1")


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_its_own_sentence(cause: Cause) -> None:
    others = [sentences(failed(1, 3, other)) for other in Cause if other is not cause]
    assert sentences(failed(1, 3, cause)) not in others


def test_a_failure_that_lasts_is_told_with_its_beginning() -> None:
    assert "since T3" in sentences(failed(1, 3), failed(1, 9))[0]
    again = entry("compacted_again", 1, 5)
    assert "since T9" in sentences(failed(1, 3), again, failed(1, 9))[0]


def test_nothing_is_told_once_it_is_over() -> None:
    assert sentences(failed(1, 3), entry("compacted_again", 1, 4)) == []
    assert len(sentences(failed(1, 3), failed(0, 4))) == 2


def test_a_restarted_broker_has_not_failed_yet() -> None:
    started = entry("leads", 1, 4, 1, 1, 1, incarnation=2)
    assert sentences(failed(1, 3), started) == []
    assert len(sentences(failed(1, 3), started, failed(1, 5, incarnation=2))) == 1


def test_another_topic_of_that_name_and_another_broker_are_not_meant() -> None:
    older = entry("not_compacted", 1, 3, Cause.DISK, -1, topic=OLDER_ID)
    beside = entry("not_compacted", 1, 3, Cause.DISK, -1, partition=1)
    assert sentences(older, beside, failed(2, 3)) == []


def test_a_broker_names_the_partitions_that_it_does_not_compact() -> None:
    seen = known(failed(1, 3))
    (reason,) = of_broker(seen, 1)
    assert reason.code is Code.NOT_COMPACTED
    assert reason.sentence == "it does not compact 1 partition, whose log grows: orders-0"
    assert reason.remedies == ("tidelog why partition orders:0",)
    assert of_broker(seen, 0) == []


def test_the_board_has_a_word_for_each_cause() -> None:
    shapes = dict(FIELDS[Kind.NOT_COMPACTED])
    assert shapes["cause"] is Shape.CAUSE
    told = [fields_of(Kind.NOT_COMPACTED, (cause, -1))["cause"] for cause in Cause]
    assert told == ["damaged", "disk", "worker_died", "bug"]
    assert fields_of(Kind.NOT_COMPACTED, (99, -1))["cause"] == 99


def test_the_status_counts_them() -> None:
    words = [0] * WORDS_PER_SLOT
    words[Word.NOT_COMPACTED] = 2
    slot = Slot(Instant(1), tuple(words))
    run = Run("r", 1, "default", "/run", "/data", "127.0.0.1:1")
    rows = [
        Seen(
            name=Name(Role.BROKER, number),
            role="broker",
            pid=1,
            state="running",
            uptime_s=1.0,
            rss_bytes=1,
            pss_bytes=1,
            port=1,
            flush_policy="os",
            slot=published,
        )
        for number, published in enumerate([slot, slot, None])
    ]
    assert document(run, "id", "running", rows)["not_compacted"] == 4
    assert document(run, "id", "running", [])["not_compacted"] == 0
