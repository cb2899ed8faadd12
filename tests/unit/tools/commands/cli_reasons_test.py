"""What `tidelog why` says: states of a cluster, and the sentences that are made of them."""

import pytest
from msgspec import structs

from tidelog.kernel.ids import (
    NO_LEADER,
    NO_OFFSET,
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    Uuid,
    uuid_text,
)
from tidelog.node.metadata.image import BrokerView, MetadataImage, TopicView
from tidelog.tools.reasons import DOWN, Code, Known, Place, Reason, absence, of_broker, of_partition
from tidelog.tools.timeline import Entry
from tidelog.wire.metadata_records import PartitionView, StopKind

ID = Uuid(bytes(range(16)))
RUN = dict.fromkeys(range(3), "running")


def partition(
    isr: tuple[int, ...] = (0, 1, 2),
    leader: int = 0,
    replicas: tuple[int, ...] = (0, 1, 2),
    **more: tuple[int, ...] | int,
) -> PartitionView:
    view = PartitionView(
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, isr)),
        leader=BrokerId(leader),
        leader_epoch=Epoch(1),
    )
    return structs.replace(view, **more)


def known(
    *views: PartitionView,
    states: dict[int, str] | None = None,
    fenced: tuple[int, ...] = (),
    events: tuple[Entry, ...] = (),
    sizes: dict[tuple[str, int, int], int] | None = None,
    static: dict[str, str] | None = None,
    down: bool = False,
    failed: dict[int, tuple[str, ...]] | None = None,
) -> Known:
    image = MetadataImage()
    for one in range(3):
        image.brokers[BrokerId(one)] = BrokerView(
            BrokerId(one),
            Incarnation(1),
            Offset(one),
            "h",
            1,
            None,
            (),
            StopKind.CLEAN,
            fenced=one in fenced,
        )
    topic = TopicView("orders", ID, {}, list(views))
    image.topics[ID] = image.names["orders"] = topic
    return Known(
        image=image,
        states=None if down else {**RUN, **(states or {})},
        events=events,
        sizes=sizes or {},
        static=static or {},
        failed=failed or {},
    )


def event(name: str, broker: int, second: int = 0, **more: int) -> Entry:
    fields = {"broker": broker, **more}
    return Entry(f"T{second}", "supervisor-0", second, 1, name, -1, "", "", fields)


def first(seen: Known) -> Place:
    return Place(seen.image.names["orders"], 0)


def told(seen: Known) -> list[Reason]:
    return of_partition(seen, first(seen))


def test_a_partition_that_is_well_has_no_reasons() -> None:
    assert told(known(partition())) == []
    assert of_broker(known(partition()), 0) == []


def lossy(start: int, second: int, number: int = 0) -> Entry:
    fields = {"from": start}
    told = ("records_lost", number, uuid_text(ID), "orders", fields)
    return Entry(f"T{second}", "coordinator-0", second, 1, *told)


OTHER = lossy(7, 3, number=1)
"""Of another partition."""
KILLED = event("ended", 2, 5, code=-9)


@pytest.mark.parametrize(
    ("seen", "codes", "sentence", "remedies"),
    [
        (  # nobody but the dead has what is committed
            known(
                partition((), NO_LEADER, elr=(2,)),
                states={2: "killed"},
                fenced=(2,),
                events=(KILLED,),
            ),
            [Code.NO_LEADER],
            (
                "has no leader: only broker 2 has every committed record, and broker 2 ended: "
                "killed by SIGKILL, at T5"
            ),
            ("tidelog broker start 2", "tidelog leader elect --unclean orders:0"),
        ),
        (
            known(
                partition((), NO_LEADER, elr=(1, 2)),
                states={1: "stopped", 2: "killed"},
                events=(event("ended", 1, 4, code=0), KILLED),
            ),
            [Code.NO_LEADER],
            (
                "has no leader: only brokers 1 and 2 have every committed record, and broker "
                "1 was stopped at T4 and broker 2 ended: killed by SIGKILL, at T5"
            ),
            (
                "tidelog broker start 1",
                "tidelog broker start 2",
                "tidelog leader elect --unclean orders:0",
            ),
        ),
        (
            known(partition((), NO_LEADER, elr=(1,))),
            [Code.NO_LEADER],
            "has no leader yet: one is being elected",
            (),
        ),
        (  # after a power loss
            known(partition((), NO_LEADER, last_known=(0, 1)), states={1: "killed"}),
            [Code.NO_LEADER],
            (
                "has no leader: brokers 0 and 1 had every committed record, and lost files; "
                "who has most leads once all are back, but broker 1 is down (killed)"
            ),
            ("tidelog broker start 1", "tidelog leader elect --unclean orders:0"),
        ),
        (
            known(
                partition((0, 1)),
                states={2: "killed"},
                events=(event("ended", 2, 1, code=0), event("ended", 1, 9, code=1), KILLED),
            ),
            [Code.NOT_IN_SYNC],
            "lacks replica 2: broker 2 ended: killed by SIGKILL, at T5",
            ("tidelog broker start 2",),
        ),
        (
            known(partition((0, 1)), sizes={("orders", 0, 0): 2048, ("orders", 0, 2): 1024}),
            [Code.NOT_IN_SYNC],
            "lacks replica 2: broker 2 catches up, it has 1.0 KiB of 2.0 KiB",
            (),
        ),
        (
            known(partition((0,)), static={"min.insync.replicas": "2"}),
            [Code.UNDER_MIN_ISR, Code.NOT_IN_SYNC, Code.NOT_IN_SYNC],
            ("refuses writes with acks=all: 1 replica in sync, min.insync.replicas asks for 2"),
            (),
        ),
        (  # a replica that is coming is no replica that is missing
            known(partition((1, 2), 1, (0, 1, 2), adding=(0,), removing=(2,))),
            [Code.MOVING],
            ("is being moved: broker 0 gets it and broker 2 gives it up; broker 0 catches up"),
            ("tidelog partition reassign status",),
        ),
        (  # who goes is nobody's preferred leader
            known(partition((0, 1, 2), 1, (0, 1, 2), removing=(0,))),
            [Code.MOVING],
            "is being moved: broker 0 gives it up",
            ("tidelog partition reassign status",),
        ),
        (
            known(partition(leader=1), static={"auto.leader.rebalance.enable": "false"}),
            [Code.NOT_PREFERRED],
            (
                "is led by broker 1, not by the preferred 0: broker 0 is in sync, and no "
                "election was held since, for auto.leader.rebalance.enable is false"
            ),
            ("tidelog leader elect orders:0",),
        ),
        (
            known(partition(leader=1), static={"leader.imbalance.check.interval.seconds": "7"}),
            [Code.NOT_PREFERRED],
            (
                "is led by broker 1, not by the preferred 0: broker 0 is in sync, and no "
                "election was held since: one is held every 7 s"
            ),
            ("tidelog leader elect orders:0",),
        ),
        (
            known(partition((1, 2), 1)),
            [Code.NOT_IN_SYNC, Code.NOT_PREFERRED],
            "lacks replica 0: broker 0 catches up",
            (),
        ),
        (
            known(partition(lossy_elections=2, lost_records=3)),
            [Code.RECORDS_LOST],
            (
                "was given 2 times to a leader that might lack committed records: at least 3 "
                "are lost"
            ),
            (),
        ),
        (
            known(partition(lossy_elections=1), events=(lossy(40, 1), lossy(83, 2), OTHER)),
            [Code.RECORDS_LOST],
            (
                "was given 1 time to a leader that might lack committed records: none is known "
                "lost; the last time what may be lost began at 83"
            ),
            (),
        ),
        (
            known(partition(lossy_elections=1), events=(lossy(NO_OFFSET, 1),)),
            [Code.RECORDS_LOST],
            "was given 1 time to a leader that might lack committed records: none is known lost",
            (),
        ),
    ],
)
def test_a_partition_in_trouble_is_told_with_what_helps(
    seen: Known, codes: list[Code], sentence: str, remedies: tuple[str, ...]
) -> None:
    found = told(seen)
    assert [one.code for one in found] == codes
    assert (found[0].sentence, found[0].remedies) == (f"orders-0 {sentence}", remedies)


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        (known(down=True), "the cluster is down"),
        (known(states={2: "killed"}), "broker 2 is down (killed)"),
        (
            known(states={2: "killed"}, events=(event("ended", 2, 1, code=3),)),
            "broker 2 ended: exit code 3, at T1",
        ),
        (
            known(states={2: "paused"}, events=(event("hung", 2, 1),)),
            "broker 2 is paused since T1",
        ),
        (
            known(fenced=(2,), events=(event("started", 2, 1), event("hung", 2, 2))),
            "broker 2 hangs since T2",
        ),
        (
            known(fenced=(2,), events=(event("hung", 2, 1), event("resumed", 2, 2))),
            "broker 2 runs, but is let in only when it knows all that was decided",
        ),
        (
            known(states={2: "starting"}, events=(event("started", 2, 1),)),
            "broker 2 starts since T1",
        ),
        (known(), None),
    ],
)
def test_a_broker_that_takes_no_part_is_told_by_the_last_that_happened_to_it(
    seen: Known, sentence: str | None
) -> None:
    away = absence(seen, 2)
    assert (None if away is None else away.sentence) == sentence


def test_where_the_cluster_is_down_nothing_else_matters() -> None:
    seen = known(partition((0, 1), 1), down=True)
    assert told(seen) == of_broker(seen, 0) == [DOWN]


def test_an_unclean_election_is_proposed_where_somebody_could_lead() -> None:
    seen = known(partition((), NO_LEADER, (2,), elr=(2,)), states={2: "killed"})
    assert told(seen)[0].remedies == ("tidelog broker start 2",)


def test_a_replica_on_a_failed_directory_does_not_catch_up() -> None:
    seen = known(partition((0, 1)), partition((0, 1)), failed={2: ("/disk",)})
    (found,) = told(seen)
    assert found.sentence == "orders-0 lacks replica 2: broker 2 cannot use /disk any more"
    assert found.remedies == ("tidelog logs broker-2",)
    first_of_all, *_ = of_broker(seen, 2)
    assert first_of_all.code is Code.DIRECTORY_FAILED
    elsewhere = known(partition((0, 1)), failed={2: ("/disk",)}, sizes={("orders", 0, 2): 7})
    assert told(elsewhere)[0].sentence.endswith("broker 2 catches up")


def test_a_broker_about_to_stop_takes_no_part() -> None:
    seen = known()
    seen.image.brokers[BrokerId(2)].stopping = True
    away = absence(seen, 2)
    assert away is not None
    assert away.sentence == "broker 2 is about to stop"
    del seen.image.brokers[BrokerId(2)]
    unknown = absence(seen, 2)
    assert unknown is not None
    assert unknown.sentence == "broker 2 runs, but has not registered yet"


def test_a_broker_is_told_with_all_that_it_holds_up() -> None:
    seen = known(
        partition((), NO_LEADER, elr=(2,)),
        partition((0, 1)),
        partition((0, 1), 0, (2, 0, 1)),
        partition((0,), 0, (0, 1)),
        states={2: "killed"},
    )
    found = of_broker(seen, 2)
    assert [one.sentence for one in found] == [
        "broker 2 is down (killed)",
        "1 partition waits for it without a leader, for it has every committed record: orders-0",
        "it is not in sync in 3 of 3 partitions: orders-0, orders-1, orders-2",
        (
            "it does not lead 1 partition that it is the preferred leader of, others took over: "
            "orders-2"
        ),
    ]


def test_a_broker_that_came_back_may_lead_by_an_election() -> None:
    seen = known(*[partition((0, 1, 2), 0, (2, 0, 1)) for _ in range(7)])
    (found,) = of_broker(seen, 2)
    assert found.remedies == ("tidelog leader elect",)
    assert found.sentence.endswith("orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more")
    behind = known(partition((0, 1), 0, (2, 0, 1)))
    assert [one.sentence for one in of_broker(behind, 2)] == [
        "it is not in sync in 1 of 1 partition yet, for it catches up: orders-0",
        (
            "it does not lead 1 partition that it is the preferred leader of, "
            "it is not in sync yet: orders-0"
        ),
    ]
