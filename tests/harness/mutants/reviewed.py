"""Mistakes that somebody who read the code asked about: would any test notice this one?

Each is a change of one function's text. The tests named here must fail with it.
"""

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Final

from harness.mutants.changes import Function, Module
from harness.mutants.live import Loaded
from harness.mutants.session import TESTS, Tests, with_tests
from harness.mutants.trying import Trial
from harness.suite.tidy_checks import ROOT

GROUPS: Final = "node/tidelog/node/groups"
LOG: Final = "node/tidelog/node/log"
REPLICA: Final = "node/tidelog/node/replica"
CONTROLLER: Final = "coordinator/tidelog/coordinator/controller"
TRANSACTIONS: Final = "coordinator/tidelog/coordinator/transactions"


@dataclass(frozen=True)
class Reviewed:
    """In the function, this text becomes that; and the tests that notice it.

    Where there is none, `why_not` says why nothing can: what the text does is done twice.
    """

    file: str
    function: str
    before: str
    after: str
    noticed_by: tuple[str, ...]
    why_not: str = ""

    @cached_property
    def place(self) -> Function:
        return Module.read(self.file, ROOT).functions[self.function]

    def code(self, root: Path = ROOT) -> CodeType:
        lines = (root / self.file).read_text(encoding="utf-8").splitlines(keepends=True)
        node = self.place.node
        assert node.end_lineno is not None
        start, stop = node.lineno - 1, node.end_lineno
        text = "".join(lines[start:stop])
        assert text.count(self.before) == 1, f"{self.file}: {self.function}: {self.before}"
        changed = [*lines[:start], text.replace(self.before, self.after), *lines[stop:]]
        module = Module(self.file, ast.parse("".join(changed)), root)
        return module.code_of(module.functions[self.function])


REVIEWED: Final[dict[str, Reviewed]] = {
    # Consumer groups.
    "stable offsets are not told from others when all are asked for": Reviewed(
        f"{GROUPS}/shard.py",
        "GroupShard._fetch_offsets",
        "if request.require_stable else None",
        "if request.require_stable and wanted is not None else None",
        (
            "groups_pending_test.py::test_who_asks_for_all_topics_is_told_what_a_transaction_may_change",
        ),
    ),
    "stable offsets of a wide request are not told from others": Reviewed(
        f"{GROUPS}/shard.py",
        "GroupShard._fetch_offsets",
        "if request.require_stable else {}",
        "if request.require_stable and wanted is not None else {}",
        (
            "api_commit_wide_test.py::test_all_offsets_of_a_group_are_told_with_what_transactions_may_change",
        ),
    ),
    "a static member that comes back still gives something up": Reviewed(
        f"{GROUPS}/consumer.py",
        "come_back",
        "        revoking={},\n",
        "",
        (
            "groups_mixed_test.py::test_a_static_member_started_again_in_mid_revocation_leaves_what_it_was_asked_for",
        ),
    ),
    "a static member that leaves for now keeps what it was to give up": Reviewed(
        f"{GROUPS}/consumer.py",
        "ConsumerGroup._leave",
        "epoch=LEFT_FOR_NOW, revoking={}",
        "epoch=LEFT_FOR_NOW",
        (
            "groups_consumer_test.py::test_a_static_member_that_leaves_for_now_gives_up_what_it_was_asked_for",
        ),
    ),
    "a group of which only pending offsets are left expires": Reviewed(
        f"{GROUPS}/shard.py",
        "GroupShard._expire_group",
        " and not self._offsets.has_unstable(name)",
        "",
        ("groups_pending_test.py::test_a_group_stays_while_a_transaction_commits_for_it",),
    ),
    "an offset of a transaction is taken from whoever names an instance": Reviewed(
        f"{GROUPS}/shard.py",
        "GroupShard._check_in_transaction",
        " or who.instance_id is not None",
        "",
        (
            "groups_pending_test.py::test_a_member_known_by_its_instance_alone_is_checked_as_a_member",
        ),
    ),
    "a static member that is away when others sync is never given up": Reviewed(
        f"{GROUPS}/classic_generations.py",
        "Generations._give_up_unsynced",
        "if not one.has_synced",
        "if not one.has_synced and one.instance_id is None",
        (
            "groups_classic_test.py::test_a_static_member_that_is_away_while_the_others_sync_is_given_up",
        ),
    ),
    "offsets are told to a member of an older epoch": Reviewed(
        f"{GROUPS}/consumer.py",
        "ConsumerGroup.check_fetch",
        "if member_epoch != member.epoch:",
        "if member_epoch > member.epoch:",
        ("groups_consumer_test.py::test_offsets_are_committed_and_fetched_in_the_members_epoch",),
    ),
    "a refusal leaves before what it rests on is committed": Reviewed(
        "node/tidelog/node/runtime/shard_host.py",
        "ShardHost._refuse",
        "self._held.append((self._ticket, asked, refusal))\n        return [*self._release()]",
        "del self._waiting[asked]\n        return [Reply(asked, refusal)]",
        ("coordinator_shard_host_test.py::test_a_refusal_waits_for_what_nobody_asked_for",),
    ),
    # Transactions.
    "a topic that a new coordinator has not heard of counts as deleted": Reviewed(
        f"{TRANSACTIONS}/markers.py",
        "Markers._find",
        "if self._is_current(due.owed.key[0]):",
        "if True:",
        (
            "transaction_markers_test.py::test_a_new_coordinator_waits_for_a_topic_that_its_log_knows_and_its_image_does_not",
        ),
    ),
    "an image counts as current before it is proven": Reviewed(
        f"{TRANSACTIONS}/stock.py",
        "Stock.is_current",
        "if partition in self._proven:",
        "if True:",
        (
            "transaction_markers_test.py::test_a_new_coordinator_waits_for_a_topic_that_its_log_knows_and_its_image_does_not",
        ),
    ),
    "a marker counts as written where the broker does not know the topic": Reviewed(
        f"{TRANSACTIONS}/markers.py",
        "Markers._settle",
        "if code in _WRITTEN:",
        "if code in {*_WRITTEN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:",
        (
            "transaction_markers_test.py::test_a_marker_that_was_refused_is_sent_again_after_a_while",
        ),
    ),
    # Replication.
    "a proposed replica counts as one that is in sync": Reviewed(
        f"{REPLICA}/leader.py",
        "Leader.enough_in_sync",
        "len(self.in_sync)",
        "len({*self.in_sync, *self._proposed})",
        ("replica_leader_test.py::test_a_proposed_replica_is_none_of_those_that_must_be_in_sync",),
    ),
    "the eligible are counted against all replicas, also those of a move": Reviewed(
        f"{CONTROLLER}/elections.py",
        "_others",
        "view.factor",
        "len(view.replicas)",
        (
            "coordinator_elections_test.py::test_an_added_replica_that_goes_is_not_eligible_while_enough_others_are_in_sync",
        ),
    ),
    "a proposal's end is told before the records it stands in": Reviewed(
        f"{CONTROLLER}/front.py",
        "Front._alter_isr",
        "if session.sent < reply.offset:",
        "if False:",
        ("coordinator_isr_test.py::test_no_outcome_is_told_before_the_records_it_is_about",),
    ),
    "feeds of an earlier leader epoch go on": Reviewed(
        f"{REPLICA}/sending.py",
        "Sending.role_changed",
        "if feed.epoch != epoch:",
        "if epoch is None:",
        ("replication_streams_test.py::test_an_ack_of_an_earlier_leader_epoch_counts_for_nothing",),
    ),
    "a follower may join one record short": Reviewed(
        f"{REPLICA}/leader.py",
        "Leader.may_join",
        "max(self.high_watermark, self.epoch_start)",
        "max(self.high_watermark, self.epoch_start) - 1",
        ("replica_leader_test.py::test_a_follower_that_lacks_one_committed_record_may_not_join",),
    ),
    "a place in the ring is given back before it is read": Reviewed(
        f"{REPLICA}/receiving.py",
        "Receiving._batch",
        "        if replica is not None:\n            try:",
        "        ring.passed(message.position + message.size)\n"
        "        if replica is not None:\n            try:",
        (
            "replication_streams_test.py::test_what_a_follower_passed_in_the_ring_may_be_written_over_at_once",
        ),
    ),
    "an acknowledgement of more than was sent is believed": Reviewed(
        f"{REPLICA}/sending.py",
        "Sending.acked",
        "not feed.acked <= ack.end <= feed.sent",
        "not feed.acked <= ack.end",
        ("replication_streams_test.py::test_an_ack_of_more_than_was_sent_is_not_believed",),
    ),
    "a leader takes a follower of another life": Reviewed(
        f"{REPLICA}/replication.py",
        "Replication._is_eligible",
        "if self._image.brokers[stream.peer].epoch != stream.broker_epoch:",
        "if False:",
        (
            "scenario_proposals_test.py::test_a_follower_of_a_life_that_the_leader_has_not_heard_of_is_not_proposed",
        ),
    ),
    "a coordinator reloads its log without knowing up to where it was flushed": Reviewed(
        "coordinator/tidelog/coordinator/runtime/journal.py",
        "Journal._load_log",
        "flushed = max(point, flushed_end(self._directory))",
        "flushed = point",
        ("coordinator_journal_test.py::test_damage_below_what_was_forced_out_stops_the_start",),
    ),
    # The log.
    "removed segments may come back after a power loss": Reviewed(
        f"{LOG}/directory.py",
        "LogDirectory.purge",
        "            self._directory.sync()\n",
        "            pass\n",
        (
            "log_flush_promises_test.py::test_files_of_deleted_records_go_only_when_the_start_is_durable",
        ),
    ),
    "a cut below the start leaves the recovery point": Reviewed(
        f"{LOG}/log.py",
        "Log._lower_recovery_point",
        "if end < max(self.recovery_point, self.start):",
        "if end < self.recovery_point:",
        (
            "log_flush_promises_test.py::test_a_cut_below_the_start_is_known_to_a_start_after_a_kill",
        ),
    ),
    "snapshots before the recovery point are not synced": Reviewed(
        f"{LOG}/unflushed.py",
        "Unflushed.files",
        "self._named_since(min(point, doubted[0].base))",
        "self._named_since(point)",
        (
            "log_flush_promises_test.py::test_a_flush_after_a_kill_covers_the_snapshot_that_the_start_wrote",
        ),
    ),
    "a flush leaves the index of aborted transactions out": Reviewed(
        f"{LOG}/unflushed.py",
        "Unflushed.held",
        " or active.aborted.is_unsynced",
        "",
        (),
        "whoever adds to that index sets `names` too, which is looked at first",
    ),
    "what was written during a flush counts as surely not on the disk": Reviewed(
        f"{LOG}/log.py",
        "Log.flushed",
        "self._unflushed.maybe_durable = self.end",
        "self._unflushed.maybe_durable = upto",
        (
            "log_flush_promises_test.py::test_a_cut_of_what_a_flush_may_have_covered_is_forced_to_disk",
        ),
    ),
    "a round takes a log that another flush has": Reviewed(
        f"{LOG}/rounds.py",
        "Rounds.begin",
        "if at <= now and not one.dirty.in_round",
        "if at <= now",
        ("log_flush_promises_test.py::test_a_log_that_another_flush_has_is_in_no_round",),
    ),
    "a cut leaves one entry of the time index too many": Reviewed(
        f"{LOG}/segment.py",
        "Segment.truncate",
        "self.times.cut_from(end - self.base)",
        "self.times.cut_from(end - self.base + 1)",
        ("log_flush_promises_test.py::test_a_cut_leaves_no_index_entry_of_what_was_cut",),
    ),
    "a compacted segment is taken in before its files are on the disk": Reviewed(
        f"{LOG}/swap.py",
        "put_in_force",
        "    if swap is not None:\n        log.directory.sync()\n",
        "",
        ("log_compaction_histories_test.py::test_a_pass_may_end_before_each_of_its_steps",),
    ),
    "a compacted segment gets its names before the old ones are gone from the disk": Reviewed(
        f"{LOG}/swap.py",
        "put_in_force",
        "like one of them.\n    log.directory.sync()\n",
        "like one of them.\n",
        ("compaction_cut_test.py::test_the_next_pass_ends_what_a_lack_of_descriptors_interrupted",),
    ),
}


def unnoticed(names: Sequence[str]) -> list[str]:
    """Put each in, in this process, and return those that one of their tests does not notice."""
    pairs = [(name, test) for name in names for test in REVIEWED[name].noticed_by]
    files = {test.partition("::")[0] for _, test in pairs}
    found: list[str] = []

    def work(tests: Tests) -> None:
        trial = Trial(tests, Loaded({REVIEWED[name].place.module for name in names}), {})
        found.extend(
            f"{name}: {test}" for name, test in pairs if not _is_noticed(trial, name, test)
        )

    with_tests([str(path) for path in sorted(TESTS.rglob("*_test.py")) if path.name in files], work)
    return found


def _is_noticed(trial: Trial, name: str, test: str) -> bool:
    one = REVIEWED[name]
    return trial.killed(one.place, one.code, [test]) is not None


def main() -> None:
    found = unnoticed([name for name, one in REVIEWED.items() if one.noticed_by])
    sys.stdout.write("".join(f"not noticed: {one}\n" for one in found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
