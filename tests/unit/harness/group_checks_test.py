"""The checks of two real groups' histories find each fault that is planted, and nothing else."""

import struct

from harness.processes.group_checks import (
    COOPERATIVE,
    Event,
    LoggedGroup,
    Owners,
    differing,
    failures,
    logged_of,
    missing_commits,
    not_committed,
    unprocessed,
    wrong_owners,
    wrong_reads,
)
from tidelog.kernel.ids import Uuid
from tidelog.node.groups import codec
from tidelog.node.groups.records import (
    CommittedOffset,
    GroupMember,
    GroupRecord,
    GroupState,
    OffsetRecord,
)
from tidelog.node.groups.records_consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerRecord,
    CurrentPartitions,
)


def owners(*rows: tuple[str, str, list[int]]) -> list[str]:
    return wrong_owners(Event(at, *row) for at, row in enumerate(rows))


def test_two_who_have_a_partition_at_once_are_found() -> None:
    fine = [("a", "assigned", [0]), ("a", "revoked", [0]), ("b", "assigned", [0])]
    assert owners(*fine) == []
    assert owners(fine[0], fine[2], fine[1]) == ["G1: 0 was given to b while a had it"]


def test_who_was_declared_dead_may_hear_of_it_late() -> None:
    given = [("a", "assigned", [0]), ("b", "assigned", [0])]
    assert owners(*given, ("a", "lost", [0])) == []
    assert owners(("a", "paused", []), *given, ("a", "revoked", [0])) == []
    assert owners(*given, ("a", "killed", []), ("b", "revoked", [0])) == []


def test_a_partition_without_an_owner_or_with_two_and_a_member_without_any_are_found() -> None:
    owners = Owners()
    owners.see(Event(1, "a", "assigned", [0, 1]))
    assert owners.is_shared(2, ["a"])
    assert not owners.is_shared(3, ["a"]), "nobody has 2"
    assert not owners.is_shared(2, ["a", "b"]), "b has nothing"
    owners.see(Event(2, "b", "assigned", [1, 2]))
    assert not owners.is_shared(3, ["a", "b"]), "both have 1"
    owners.see(Event(3, "a", "revoked", [1]))
    assert owners.is_shared(3, ["a", "b"])
    owners.see(Event(4, "b", "killed"))
    assert not owners.is_shared(3, ["a", "b"])
    owners.see(Event(5, "c", "assigned", [1, 2]))
    assert not owners.is_shared(3, ["a"]), "c is none of them"


def test_what_a_client_did_not_get_over_is_found() -> None:
    fine = [Event(1, "a", "began", "classic"), Event(2, "a", "poll", "no coordinator")]
    assert [*failures(fine)] == []
    assert [*failures([*fine, Event(3, "a", "failed", "at 7 of 0 is b'8'")])] == [
        "a: at 7 of 0 is b'8'"
    ]


def test_replicas_that_differ_are_found() -> None:
    assert [*differing([b"log", b"log", b"log"])] == []
    assert [*differing([b"log", b"log", b"lo"])] == [
        "the replicas' bytes differ: [3, 3, 2] of them"
    ]


READING = (
    Event(1, "a", "assigned", [0]),
    Event(2, "a", "read", [0, 0, 5]),
    Event(3, "a", "commit", {"0": 5}),
    Event(4, "a", "committed", {"0": 5}),
    Event(5, "a", "revoked", [0]),
    Event(6, "b", "assigned", [0]),
    Event(7, "b", "read", [0, 5, 9]),
)


def read_instead(first: int) -> list[str]:
    return [*wrong_reads([*READING[:-1], Event(7, "b", "read", [0, first, 9])])]


def test_a_start_before_what_was_acknowledged_or_where_nobody_committed_is_found() -> None:
    assert read_instead(5) == []
    assert read_instead(0) == ["G3: b began at 0 of 0, 5 was acknowledged"]
    assert read_instead(7) == ["G3: b began at 7 of 0, which nobody committed"]


def test_what_is_left_out_or_comes_again_while_reading_is_found() -> None:
    assert [*wrong_reads([*READING, Event(8, "b", "read", [0, 9, 12])])] == []
    for first in (8, 10):
        (wrong,) = wrong_reads([*READING, Event(8, "b", "read", [0, first, 12])])
        assert wrong == f"G3: b read {first} of 0 after 9"


def test_a_commit_of_what_nobody_processed_is_found() -> None:
    assert [*unprocessed(READING, {0: 9})] == []
    assert [*unprocessed(READING, {0: 10})] == ["0: 10 is committed, and 9 was not processed"]
    late = [Event(1, "a", "read", [0, 1, 9])]
    assert [*unprocessed(late, {0: 9})] == ["0: 9 is committed, and 0 was not processed"]


# -- the log


def classic(generation: int, protocol: str = "range", **shares: list[int] | None) -> GroupRecord:
    """None: the member has not got its share yet."""
    members = tuple(
        GroupMember(f"id-{name}", None, name, "/127.0.0.1", 1, 1, b"", _assignment(share))
        for name, share in shares.items()
    )
    return GroupRecord("g", GroupState("consumer", generation, protocol, "id-a", 0, members))


def _assignment(share: list[int] | None) -> bytes:
    if share is None:
        return b""
    rows = struct.pack(f">i{len(share)}i", len(share), *share)
    return b"\0\0" + struct.pack(">ih", 1, 1) + b"t" + rows + b"\0\0\0\0"


def commit(member: str, offset: int) -> OffsetRecord:
    return OffsetRecord("g", "t", 0, CommittedOffset(offset, -1, member, 0))


def logged(*records: codec.StoredRecord, changes: bool = False) -> LoggedGroup:
    """By way of their bytes."""
    other = OffsetRecord("other", "t", 0, CommittedOffset(7, -1, "x", 0))
    return logged_of("g", bytes(codec.batch_of([other, *records], 0)), changes=changes)


BOTH = (classic(1, a=None, b=None), classic(1, a=[0], b=[1]))


def test_a_classic_group_that_goes_on_as_it_may_is_fine() -> None:
    fine = logged(*BOTH, commit("a", 5), classic(2, b=None), classic(2, b=[0, 1]), commit("b", 6))
    assert fine.wrong == []
    assert fine.committed == {0: 6}
    assert fine.generations == 2


def test_a_commit_of_who_does_not_own_the_partition_is_found() -> None:
    assert logged(*BOTH, commit("b", 5)).wrong == ["G1: b committed 0 at 5 in 1, of ['a']"]
    late = logged(*BOTH, classic(2, a=None, b=None), commit("a", 5))
    assert late.wrong == ["G1: a committed 0 at 5 in 2, of []"]


def test_a_commit_of_no_member_is_fine_before_the_group_has_members_and_found_later() -> None:
    beginning = commit("", 0)
    begun = logged(beginning, *BOTH, commit("a", 5))
    assert (begun.wrong, begun.committed) == ([], {0: 5})
    assert logged(*BOTH, beginning).wrong == ["G1:  committed 0 at 0 in 1, of ['a']"]
    assert logged(commit("a", 5), *BOTH).wrong == ["G1: a committed 0 at 5 in -1, of []"]


def test_two_owners_in_one_generation_are_found() -> None:
    twice = logged(BOTH[0], classic(1, a=[0], b=[0, 1]))
    assert twice.wrong == ["G1: 0 is of a and b in 1"]


def test_a_generation_that_comes_twice_or_goes_back_is_found() -> None:
    assert logged(*BOTH, classic(1, a=[0, 1])).wrong == ["G2: 1 after 1"]
    assert logged(classic(2, a=[0]), classic(1, a=None)).wrong == ["G2: 1 after 2"]
    assert logged(*BOTH, GroupRecord("g", None)).wrong == ["G2: the group was forgotten in 1"]


def test_a_commit_that_goes_back_or_is_forgotten_is_found() -> None:
    back = logged(*BOTH, commit("a", 5), commit("a", 4))
    assert back.wrong == ["G4: 0 went back from 5 to 4"]
    gone = logged(*BOTH, OffsetRecord("g", "t", 0, None))
    assert gone.wrong == ["G3: the commit of 0 was forgotten"]


def test_an_acknowledged_commit_that_is_not_in_the_log_is_found() -> None:
    told = [Event(4, "a", "committed", {"0": 5})]
    assert [*missing_commits(told, logged(*BOTH, commit("a", 5)))] == []
    (missing,) = missing_commits(told, logged(*BOTH, commit("a", 4)))
    assert missing == "G3: a's commit 5 of 0 is not in the log"


def test_a_log_that_does_not_end_where_the_producer_did_is_found() -> None:
    log = logged(*BOTH, commit("a", 5))
    assert [*not_committed(log, [5])] == []
    assert [*not_committed(log, [6])] == ["G3: {0: 5} is committed, [6] was produced"]
    assert [*not_committed(log, [5, 0])] == ["G3: {0: 5} is committed, [5, 0] was produced"]


def epoch(number: int) -> ConsumerRecord:
    value = ConsumerGroupMetadataValue(epoch=number)
    return ConsumerRecord(ConsumerGroupMetadataKey(group="g"), value)


def named(member: str) -> ConsumerRecord:
    key = ConsumerGroupMemberMetadataKey(group="g", member=f"id-{member}")
    value = ConsumerGroupMemberMetadataValue(
        client_id=member, client_host="/127.0.0.1", subscribed_topic_names=["t"]
    )
    return ConsumerRecord(key, value)


def has(member: str, number: int, assigned: list[int], revoking: list[int]) -> ConsumerRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group="g", member=f"id-{member}")
    topic = Uuid(bytes(16))
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=number,
        previous_member_epoch=number - 1,
        state=0,
        assigned_partitions=[CurrentPartitions(topic_id=topic, partitions=assigned)],
        partitions_pending_revocation=[CurrentPartitions(topic_id=topic, partitions=revoking)],
    )
    return ConsumerRecord(key, value)


JOINED = (epoch(1), named("a"), has("a", 1, [0, 1], []), epoch(2), named("b"), has("b", 2, [], []))


def test_a_partition_of_the_consumer_protocol_is_given_when_it_was_given_up() -> None:
    told = (*JOINED, has("a", 1, [0], [1]))
    assert logged(*told, commit("a", 5), has("a", 2, [0], []), has("b", 2, [1], [])).wrong == []
    assert logged(*told, has("b", 2, [1], [])).wrong == ["G1: 1 is of a and b in 2"]
    assert logged(*told, commit("b", 5)).wrong == ["G1: b committed 0 at 5 in 2, of ['a']"]


def test_an_epoch_that_does_not_rise_or_that_no_group_has_is_found() -> None:
    assert logged(*JOINED, epoch(2)).wrong == ["G2: 2 after 2"]
    assert logged(*JOINED, has("a", 3, [0, 1], [])).wrong == ["G2: a member of 3 in 2"]


def test_who_left_just_before_the_protocol_changed_has_nothing_any_more() -> None:
    taken_back, b_came = GroupRecord("g", None), [epoch(2), named("b"), has("b", 2, [0, 1], [])]
    moved = logged(classic(1, a=None), classic(1, a=[0]), taken_back, *b_came, changes=True)
    assert moved.wrong == []
    both_came = [*b_came, named("a"), has("a", 2, [0], [])]
    two = logged(classic(1, a=None), classic(1, a=[0]), taken_back, *both_came, changes=True)
    assert two.wrong == ["G1: 0 is of b and a in 2"]


def test_who_gives_up_in_the_cooperative_way_may_commit_until_another_has_it() -> None:
    told = [classic(1, COOPERATIVE, a=[0], b=[])]
    told += [classic(2, COOPERATIVE, a=None, b=None), classic(2, COOPERATIVE, a=[], b=[1])]
    assert logged(*told, commit("a", 5)).wrong == []
    (wrong,) = logged(*told, commit("b", 5)).wrong
    assert wrong == "G1: b committed 0 at 5 in 2, of ['a']"
    given = (classic(3, COOPERATIVE, a=None, b=None), classic(3, COOPERATIVE, a=[], b=[0, 1]))
    (wrong,) = logged(*told, *given, commit("a", 5)).wrong
    assert wrong == "G1: a committed 0 at 5 in 3, of ['b']"
