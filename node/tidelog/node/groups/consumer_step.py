"""One decision on a group of the consumer protocol, while it is made.

It knows the group as it will be once the decision's records are replayed: the log itself must not
change before.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.kernel.ids import Uuid
from tidelog.node.groups.assignors import ASSIGNORS, Assignment, Subscriber
from tidelog.node.groups.consumer_log import (
    LoggedGroup,
    changed_target,
    current_record,
    epoch_record,
    expression_record,
    expression_tombstone,
    member_record,
    member_tombstones,
    preferred_assignor,
    target_epoch_record,
    target_record,
)
from tidelog.node.groups.consumer_member import Member
from tidelog.node.groups.group import Draft
from tidelog.node.groups.patterns import Pattern
from tidelog.node.groups.topics import Topics

_NOTHING: Final[Assignment] = {}


class Step:
    """What becomes of a group."""

    def __init__(self, log: LoggedGroup, topics: Topics, draft: Draft, now_ms: int) -> None:
        self._log = log
        self._topics = topics
        self._draft = draft
        self._now_ms = now_ms
        self.members = dict(log.members)
        self.matched = dict(log.matched)
        self.epoch = log.epoch
        self.target: Mapping[str, Assignment] = log.target
        self._hash = log.metadata_hash

    def put(self, member: Member) -> None:
        """A member comes, or wants something else."""
        self.members[member.member_id] = member
        self._draft.record(member_record(self._log.group, member))

    def take_out(self, names: Iterable[str]) -> None:
        for name in names:
            del self.members[name]
            for record in member_tombstones(self._log.group, name):
                self._draft.record(record)
        self.target = {name: self.target[name] for name in self.members if name in self.target}

    def replace(self, old: Member, new: Member) -> None:
        """A static member came back under another id: all that it had is the new one's."""
        target = self.target.get(old.member_id, _NOTHING)
        self.take_out([old.member_id])
        self.put(new)
        self.target = {**self.target, new.member_id: target}
        self._draft.record(target_record(self._log.group, new.member_id, target))
        self._draft.record(current_record(self._log.group, new))

    def place(self, member: Member) -> None:
        """It has come a step further to its target."""
        self.members[member.member_id] = member
        self._draft.record(current_record(self._log.group, member))

    def follow_topics(self, patterns: Mapping[str, Pattern]) -> None:
        """Look anew at what the expressions match; forget those that nobody uses any more."""
        for text in sorted(self.matched.keys() - patterns.keys()):
            del self.matched[text]
            self._draft.record(expression_tombstone(self._log.group, text))
        for text, pattern in patterns.items():
            found = frozenset(name for name in self._topics.names() if pattern.matches(name))
            if self.matched.get(text) != found:
                self.matched[text] = found
                self._draft.record(
                    expression_record(
                        self._log.group,
                        text,
                        found,
                        version=self._topics.version,
                        now_ms=self._now_ms,
                    )
                )

    def move_epoch(self, *, changed: bool) -> None:
        """To the next one, if the members or what they want changed, or a topic of theirs did."""
        found = self._hash_of_topics()
        if changed or found != self._hash:
            self._hash = found
            self.epoch += 1
            self._draft.record(epoch_record(self._log.group, self.epoch, found))

    def make_target(self) -> None:
        """Where the epoch is newer than the target: what each member shall have."""
        if self.epoch == self._log.assignment_epoch or not self.members:
            return
        sizes: dict[Uuid, int] = {}
        subscribers = {name: self._subscriber(one, sizes) for name, one in self.members.items()}
        target = ASSIGNORS[preferred_assignor(self.members.values())](subscribers, sizes)
        for record in changed_target(self._log.group, self.target, target):
            self._draft.record(record)
        self.target = target
        self._draft.record(target_epoch_record(self._log.group, self.epoch, self._now_ms))

    def _subscriber(self, member: Member, sizes: dict[Uuid, int]) -> Subscriber:
        """Notes the sizes of its topics on the way."""
        wanted = set()
        for name in self._names(member):
            facts = self._topics.of_name(name)
            if facts is not None:
                wanted.add(facts.id)
                sizes[facts.id] = facts.partitions
        held = self.target.get(member.member_id, _NOTHING)
        return Subscriber(member.instance_id, frozenset(wanted), held)

    def _names(self, member: Member) -> frozenset[str]:
        names = frozenset(member.topics)
        return names if member.regex is None else names | self.matched[member.regex]

    def topic_ids(self, member: Member) -> frozenset[Uuid]:
        """The topics that a member wants, of those that there are."""
        found = map(self._topics.of_name, self._names(member))
        return frozenset(one.id for one in found if one is not None)

    def topics(self) -> frozenset[str]:
        """The names that anybody in it wants."""
        return frozenset[str]().union(*map(self._names, self.members.values()))

    def _hash_of_topics(self) -> int:
        """Of what there is of the topics that the group wants; 0 where there is nothing."""
        digest = hashlib.blake2b(digest_size=8)
        found = False
        for name in sorted(self.topics()):
            facts = self._topics.of_name(name)
            if facts is not None:
                found = True
                digest.update(f"{name} {facts.partitions} ".encode() + facts.id)
        return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
