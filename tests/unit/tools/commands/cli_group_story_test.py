"""The rebalances of a group out of its brokers' logs, and its partitions out of its own log."""

from typing import Any

import pytest

from tidelog.kernel.ids import Uuid
from tidelog.node.groups import codec, consumer_log, embedded
from tidelog.node.groups.consumer_member import Member
from tidelog.node.groups.history import Chapter
from tidelog.node.groups.records import CommittedOffset, GroupMember, GroupRecord, GroupState
from tidelog.node.groups.records import OffsetRecord as Commit
from tidelog.tools.group_log import GENERATIONS_KEPT, GroupLog
from tidelog.tools.group_story import KEPT, Outcome, Rebalance, rebalances_of
from tidelog.tools.timeline import Entry
from tidelog.wire.records import Record

BEGAN, WAITS, GATHERED, ENDED = Chapter
TOPIC = Uuid(b"t" * 16)


def told(second: int, chapter: Chapter, generation: int, broker: int = 0, **fields: Any) -> Entry:
    said = {"group": "g", "generation": generation, **fields}
    at = f"2026-01-31T12:00:{second:02}.000000Z"
    return Entry(at, f"broker-{broker}", second, 1, chapter.value, -1, "", "", said)


def story(*entries: Entry) -> list[Rebalance]:
    return rebalances_of(entries, "g")


BY_ONE: dict[str, Any] = {"member": "id-1", "client": "one", "host": "/127.0.0.1"}
BY_TWO: dict[str, Any] = {"member": "id-2", "client": "two", "host": "/127.0.0.2"}


def test_a_rebalance_is_put_together_out_of_its_chapters() -> None:
    (found,) = story(
        told(1, BEGAN, 3, kind="classic", trigger="leave", reason="bye", members=3, **BY_ONE),
        told(2, WAITS, 3, missing=["two (127.0.0.2)"], missing_count=1),
        told(4, GATHERED, 3, members=2, given_up=["x (h)"], given_up_count=1, **BY_TWO),
        told(5, ENDED, 3, **BY_ONE),
    )
    assert (found.trigger, found.member.name, found.reason) == ("leave", "one (127.0.0.1)", "bye")
    assert (found.gathering_s, found.sharing_s, found.seconds) == (3.0, 1.0, 4.0)
    assert (found.gathered_last.name, found.given_up) == ("two (127.0.0.2)", ["x (h)"])
    assert (found.waits_for, found.outcome) == ([], Outcome.DONE)


def test_one_that_is_under_way_says_whom_it_waits_for() -> None:
    (found,) = story(
        told(1, BEGAN, 3, trigger="join"),
        told(2, WAITS, 3, missing=["a (h)", "b (h)"], missing_count=7),
    )
    assert (found.outcome, found.waits_for, found.waits_count) == (
        Outcome.OPEN,
        ["a (h)", "b (h)"],
        7,
    )
    assert (found.seconds, found.gathering_s, found.sharing_s) == (None, None, None)


def test_what_was_not_through_was_overtaken_or_its_coordinator_was_gone() -> None:
    found = story(
        told(1, BEGAN, 3, trigger="join"),
        told(2, BEGAN, 4, trigger="join"),
        told(3, BEGAN, 4, broker=1, trigger="coordinator moved"),
    )
    assert [one.outcome for one in found] == [Outcome.OVERTAKEN, Outcome.MOVED, Outcome.OPEN]


def test_another_coordinator_may_go_on_with_it() -> None:
    (found,) = story(
        told(1, BEGAN, 3, trigger="join"),
        told(2, GATHERED, 3, broker=1),
        told(3, ENDED, 3, broker=1),
    )
    assert (found.outcome, found.broker) == (Outcome.DONE, "broker-0")


def test_other_groups_other_events_and_what_has_no_beginning_are_left_out() -> None:
    other = Entry("2026-01-31T12:00:00Z", "broker-0", 1, 1, "elected", 0, "id", "t", {})
    elsewhere = told(1, BEGAN, 3)
    elsewhere.fields["group"] = "h"  # type: ignore[index]  # a dict, which nobody changes later
    assert story(other, elsewhere, told(1, ENDED, 2), told(1, WAITS, 2)) == []


def test_the_latest_are_kept() -> None:
    found = story(*(told(1, BEGAN, number) for number in range(KEPT + 5)))
    assert (len(found), found[-1].generation) == (KEPT, KEPT + 4)


# -- the group's own log ------------------------------------------------------------------------


def log_of(*rows: tuple[int, codec.StoredRecord]) -> GroupLog:
    """Moments and records, by way of their bytes."""
    log = GroupLog("g")
    for at, record in rows:
        log.see(Record(0, at, *codec.pair(record)))
    return log


def classic(generation: int, **shares: list[int] | None) -> GroupRecord:
    members = tuple(
        GroupMember(
            f"id-{name}",
            f"i-{name}" if name.startswith("static") else None,
            name,
            "/127.0.0.1",
            1,
            1,
            b"",
            b"" if share is None else embedded.write_assignment(0, {"t": share}),
        )
        for name, share in shares.items()
    )
    return GroupRecord("g", GroupState("consumer", generation, "range", None, 0, members))


def test_a_commit_is_known_with_its_moment_until_it_is_forgotten() -> None:
    commit = Commit("g", "t", 0, CommittedOffset(5, -1, "", 77))
    other = Commit("gg", "t", 1, CommittedOffset(5, -1, "", 77))
    log = log_of((1, commit), (2, other))
    assert log.commits == {("t", 0): (5, 77)}
    assert log_of((1, commit), (2, Commit("g", "t", 0, None))).commits == {}


def test_an_owner_of_a_classic_group_has_what_each_generation_gave_it() -> None:
    log = log_of(
        (1, classic(1, a=None)),
        (2, classic(1, a=[0, 1])),
        (3, classic(2, a=None, b=None)),
        (4, classic(2, a=[0], b=[1])),
    )
    assert [log.since_ms(("t", number)) for number in (0, 1, 2)] == [2, 4, None]
    assert [(one.number, one.at_ms, one.came, one.went) for one in log.generations] == [
        (1, 1, ("a",), ()),
        (2, 3, ("b",), ()),
    ]
    log.see(Record(0, 9, *codec.pair(GroupRecord("g", None))))
    assert log.since_ms(("t", 0)) is None


def test_who_went_is_told_by_its_client() -> None:
    log = log_of((1, classic(1, a=[0], b=[1])), (2, classic(2, a=[0, 1])))
    assert log.generations[-1].went == ("b",)


def member(
    name: str, held: list[int], *, revoking: tuple[int, ...] = (), instance: str | None = None
) -> Member:
    return Member(
        name,
        instance_id=instance,
        client_id=f"client-{name}",
        epoch=1,
        assigned={TOPIC: dict.fromkeys(held, 1)} if held else {},
        revoking={TOPIC: dict.fromkeys(revoking, 1)} if revoking else {},
    )


def joined(at: int, one: Member) -> list[tuple[int, codec.StoredRecord]]:
    return [(at, consumer_log.member_record("g", one)), (at, consumer_log.current_record("g", one))]


def test_an_owner_of_the_consumer_protocol_has_what_its_latest_record_says() -> None:
    rows = [
        *joined(1, member("a", [0, 1])),
        (1, consumer_log.epoch_record("g", 1, 0)),
        *joined(2, member("b", [])),
        (2, consumer_log.epoch_record("g", 2, 0)),
        (3, consumer_log.current_record("g", member("a", [0], revoking=(1,)))),
    ]
    log = log_of(*rows)
    assert [log.since_ms((TOPIC, number)) for number in (0, 1)] == [1, 1], "both are still held"
    for row in (
        (4, consumer_log.current_record("g", member("a", [0]))),
        (5, consumer_log.current_record("g", member("b", [1]))),
        (5, consumer_log.target_record("g", "b", {})),
    ):
        log.see(Record(0, row[0], *codec.pair(row[1])))
    assert [log.since_ms((TOPIC, number)) for number in (0, 1)] == [1, 5]
    assert [(one.number, one.came) for one in log.generations] == [
        (1, ("client-a",)),
        (2, ("client-b",)),
    ]


@pytest.mark.parametrize(("instance", "since"), [("i", 1), (None, 2)])
def test_a_static_member_that_comes_back_was_never_away(instance: str | None, since: int) -> None:
    before, after = (member(name, [0], instance=instance) for name in ("a", "a2"))
    gone = [(2, record) for record in consumer_log.member_tombstones("g", "a")]
    log = log_of(*joined(1, before), *gone, *joined(2, after))
    assert log.since_ms((TOPIC, 0)) == since


def test_who_left_and_what_it_had_are_gone_with_the_next_epoch() -> None:
    gone = [(2, record) for record in consumer_log.member_tombstones("g", "a")]
    log = log_of(*joined(1, member("a", [0])), *gone, (2, consumer_log.epoch_record("g", 2, 0)))
    assert log.since_ms((TOPIC, 0)) is None
    assert log.generations[-1].went == ("client-a",)


def test_what_a_later_kafka_wrote_is_passed_over() -> None:
    log = GroupLog("g")
    key = b"\x00\x07" + b"\x00\x01g" + b"\x00\x01m"
    for record in (
        Record(0, 1, key, b"\x00\x63"),
        Record(0, 1, b"\x00\x63\x00\x01g", b""),
        Record(0, 1, None, b""),
    ):
        log.see(record)
    assert (log.commits, len(log.generations)) == ({}, 0)


def test_the_latest_generations_are_kept() -> None:
    rows = [(at, classic(at, a=[0])) for at in range(1, GENERATIONS_KEPT + 9)]
    assert len(log_of(*rows).generations) == GENERATIONS_KEPT
