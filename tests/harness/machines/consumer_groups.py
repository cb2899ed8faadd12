"""A group of the consumer protocol over a log in memory, and members that behave as clients do."""

from collections.abc import Iterable, Mapping

from tidelog.kernel.ids import RequestId, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups import codec
from tidelog.node.groups.consumer import ConsumerGroup
from tidelog.node.groups.consumer_member import pairs_of
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat, HeartbeatAnswer
from tidelog.node.groups.group import Around, Draft
from tidelog.node.groups.history import Told
from tidelog.node.groups.records_consumer import ConsumerRecord
from tidelog.node.groups.topics import TopicFacts

SETTINGS: dict[str, int | str] = {
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.session.timeout.ms": 45_000,
    "group.consumer.max.size": 100,
    "group.max.size": 100,
}
REBALANCE_MS = 60_000


class TopicsInMemory:
    """The topics of a cluster."""

    def __init__(self, **sizes: int) -> None:
        self.version = 0
        self.sizes: dict[str, int] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self._came: dict[str, int] = {}
        self.set(**sizes)

    def set(self, **sizes: int) -> None:
        self.version += 1
        self._came.update({name: self.version for name in sizes if name not in self.sizes})
        self.sizes.update(sizes)

    def drop(self, name: str) -> None:
        self.version += 1
        del self.sizes[name]

    def names(self) -> Iterable[str]:
        return self.sizes

    def came(self, name: str) -> int:
        return self._came[name]

    def of_name(self, name: str) -> TopicFacts | None:
        size = self.sizes.get(name)
        return None if size is None else TopicFacts(topic_id(name), size)

    def configs_of(self, group: str) -> Mapping[str, str]:
        return self.configs.get(group, {})

    def name_of(self, topic: Uuid) -> str | None:
        return next((name for name in self.sizes if topic_id(name) == topic), None)


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\0"))


class GroupOverLog:
    """Decides, writes and replays, as a coordinator does; `restart` is a fail-over."""

    def __init__(self, topics: TopicsInMemory, **settings: int) -> None:
        self.topics = topics
        self.settings = {**SETTINGS, **settings}
        self.now = Instant(0)
        self.written: list[tuple[bytes, bytes | None]] = []
        self.told: list[Told] = []
        self.group = self._empty()
        self.group.loaded(self.now)

    def _empty(self) -> ConsumerGroup:
        around = Around(self.settings, self.topics, lambda now: now // ms(1), self.told.append)
        return ConsumerGroup("g", around)

    def heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        draft = Draft()
        self.group.heartbeat(self.now, RequestId(1), request, draft)
        self._replay(draft)
        ((_, answer),) = draft.replies
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def wait(self, seconds: float) -> None:
        """Time passes, and what is due is done."""
        end = Instant(self.now + ms(seconds * 1000))
        while (due := self.group.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            draft = Draft()
            self.group.expire(self.now, draft)
            self._replay(draft)
        self.now = end

    def restart(self, *, compacted: bool = False) -> None:
        """Another coordinator reads the log, which may hold the last record of each key only."""
        if compacted:
            last = {key: place for place, (key, _) in enumerate(self.written)}
            self.written = [self.written[place] for place in sorted(last.values())]
        self.group = self._empty()
        for key, value in self.written:
            self._replay_one(key, value)
        self.group.loaded(self.now)

    def _replay(self, draft: Draft) -> None:
        for record in draft.records:
            key, value = codec.pair(record)
            self.written.append((key, value))
            self._replay_one(key, value)

    def _replay_one(self, key: bytes, value: bytes | None) -> None:
        record = codec.read(key, value)
        assert isinstance(record, ConsumerRecord)
        self.group.replay(record)


class Client:
    """A member as Java's and librdkafka's are: it stops using what it must give up, then says so.

    `uses` is what it reads from now, `told` what it was last told to: a member that gives up slowly
    still reads more. One that is late has yet to apply what it was told; it does so while its next
    heartbeat is on the way.
    """

    def __init__(
        self,
        group: GroupOverLog,
        name: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self._group = group
        self.name = name
        self.instance = instance
        self.topics = topics
        self.regex = regex
        self.assignor = assignor
        self.epoch = 0
        self.uses: frozenset[tuple[Uuid, int]] = frozenset()
        self.told = self._owed = self.uses
        """`_owed` is what it has yet to give up."""
        self._unapplied: frozenset[tuple[Uuid, int]] | None = None
        """What it was told and has yet to apply."""
        self._news = False
        """Whether it owns something else than it last said."""
        self._says_all = True

    def subscribe(self, *topics: str) -> None:
        self.topics = topics
        self._says_all = True

    def beat(
        self,
        *,
        answer_lost: bool = False,
        full: bool = False,
        slow: bool = False,
        late: bool = False,
    ) -> HeartbeatAnswer:
        """One heartbeat. Of a lost answer it knows that it is lost, and says everything again. A
        slow member goes on with what it was told to give up; a late one applies the answer while
        its next heartbeat is on the way."""
        if not slow and self._owed:
            self.uses -= self._owed
            self._owed, self._news = frozenset(), True
        answer = self._group.heartbeat(self._request(full=full))
        self._says_all = answer_lost
        self._news = False
        unapplied, self._unapplied = self._unapplied, None
        if answer_lost:
            self.uses |= unapplied or frozenset()
            return answer
        self.epoch = answer.epoch
        told = unapplied if answer.assigned is None else frozenset(pairs_of(answer.assigned))
        if unapplied is not None:
            self.uses |= unapplied
            slow = True
        if told is not None:
            self._take(told, slow=slow, late=late)
        return answer

    def _request(self, *, full: bool) -> ConsumerHeartbeat:
        """What did not change it does not say; what it owns it says when that changed."""
        says = self._says_all or full or self.epoch == 0
        return ConsumerHeartbeat(
            group="g",
            member_id=self.name,
            epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS if says else -1,
            topics=tuple(self.topics) if says and self.regex is None else None,
            regex=self.regex if says else None,
            assignor=self.assignor,
            owned=tuple(sorted(self.uses)) if says or self._news else None,
            client_id="client",
            client_host="/127.0.0.1",
        )

    def _take(self, told: frozenset[tuple[Uuid, int]], *, slow: bool, late: bool) -> None:
        self.told = told
        if late:
            self._unapplied = self.told
            return
        self._news = self.told != self.uses
        self._owed = self.uses - self.told if slow else frozenset()
        self.uses = self.told | self._owed

    def start_again(self) -> None:
        """It was fenced: it drops everything and joins anew."""
        self.epoch = 0
        self.uses = self.told = self._owed = frozenset()
        self._unapplied = None

    def leave(self, *, for_now: bool = False) -> None:
        epoch = -2 if for_now else -1
        self._group.heartbeat(
            ConsumerHeartbeat(
                group="g", member_id=self.name, epoch=epoch, instance_id=self.instance
            )
        )
        self.start_again()


def settle(clients: Iterable[Client]) -> None:
    """Heartbeats until nobody has anything to say: at most three rounds are needed."""
    members = list(clients)
    for _ in range(3):
        for client in members:
            client.beat()
