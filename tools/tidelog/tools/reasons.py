"""Why a partition or a broker is not as it should be, in sentences, and what to do. No I/O.

What is known comes as values: the cluster as its metadata log tells it, the processes as their
supervisor sees them, and what all of them recorded. The first reason is the one that hurts most.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from tidelog.coordinator.settings import rules_of
from tidelog.kernel.ids import NO_LEADER, NO_OFFSET, BrokerId, uuid_text
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.node.settings import BROKER
from tidelog.tools.output import counted, listed, size
from tidelog.tools.supervisor.plan import ending
from tidelog.tools.timeline import Entry
from tidelog.wire.metadata_records import PartitionView

_NAMED_MAX = 5


class Place(Struct, frozen=True):
    """One partition."""

    topic: TopicView
    number: int

    @property
    def view(self) -> PartitionView:
        return self.topic.partitions[self.number]

    @property
    def name(self) -> str:
        """As sentences say it."""
        return f"{self.topic.name}-{self.number}"

    @property
    def word(self) -> str:
        """As commands take it."""
        return f"{self.topic.name}:{self.number}"

    @property
    def id_and_number(self) -> tuple[str, int]:
        """As events name it."""
        return uuid_text(self.topic.id), self.number

    @property
    def preferred(self) -> BrokerId:
        """The first of the replicas that it shall have."""
        return next(one for one in self.view.replicas if one not in self.view.removing)

    def waits_for(self, broker: int) -> bool:
        """Nobody leads it, and this one may."""
        return self.view.leader == NO_LEADER and self.view.trusts(BrokerId(broker))

    def should_be_led_by(self, broker: int) -> bool:
        """Somebody else leads it, though this one is preferred, and does not only come yet."""
        coming = broker in self.view.adding and broker not in self.view.isr
        is_led = self.view.leader not in {broker, NO_LEADER}
        return self.preferred == broker and is_led and not coming


class Code(StrEnum):
    """What is the matter, for programs."""

    NO_LEADER = "no-leader"
    UNDER_MIN_ISR = "under-min-isr"
    NOT_IN_SYNC = "not-in-sync"
    MOVING = "moving"
    NOT_PREFERRED = "not-preferred"
    RECORDS_LOST = "records-lost"
    NOT_COMPACTED = "not-compacted"
    BROKER_AWAY = "broker-away"
    CLUSTER_DOWN = "cluster-down"
    WAITED_FOR = "waited-for"
    DIRECTORY_FAILED = "directory-failed"
    SICK_DISK = "sick-disk"
    OPEN_TRANSACTION = "open-transaction"
    OVERDUE_TRANSACTION = "overdue-transaction"
    HANGING_TRANSACTION = "hanging-transaction"
    MARKER_MISSING = "marker-missing"
    READERS_WAIT = "readers-wait"
    OFFSETS_PENDING = "offsets-pending"
    # of groups
    NO_COORDINATOR = "no-coordinator"
    NO_MEMBERS = "no-members"
    REBALANCING = "rebalancing"
    RESTLESS = "restless"
    STUCK = "stuck"


class Reason(Struct, frozen=True):
    code: Code
    sentence: str
    remedies: tuple[str, ...] = ()
    """Commands that help, the best first."""
    broker: int | None = None


class Known(Struct, frozen=True):
    """All that the sentences are made of."""

    image: MetadataImage
    states: Mapping[int, str] | None
    """Of the brokers' processes, in the words of `status`; None where the cluster is down."""
    events: Sequence[Entry]
    sizes: Mapping[tuple[str, int, int], int] = {}
    """Bytes by topic, partition and broker, as far as brokers told."""
    static: Mapping[str, str] = {}
    """Settings of the last start."""
    failed: Mapping[int, Sequence[str]] = {}
    """Log directories that brokers say they cannot use."""
    sick: Mapping[int, Sequence[str]] = {}
    """Faults that are on, of brokers' disks."""
    servers: str = ""
    """Where the running brokers listen."""

    def setting(self, name: str) -> int | bool:
        """A broker-wide one that is in force."""
        found: int | bool = BROKER.read(self._given(), name)
        return found

    def min_in_sync(self, topic: TopicView) -> int:
        return rules_of(topic.configs, self._given()).min_in_sync

    def _given(self) -> dict[str, str]:
        return {**self.static, **self.image.broker_configs.get("", {})}

    def process(self, broker: int) -> str:
        """What its process does, in a word."""
        return "down" if self.states is None else self.states.get(broker, "missing")

    def holds(self, place: Place, broker: int) -> bool:
        """Whether the broker told of a log of the partition."""
        return (place.topic.name, place.number, broker) in self.sizes

    def last(self, broker: int, *events: str) -> Entry | None:
        """The last of these that is about a broker as a whole."""
        return next(
            (
                one
                for one in reversed(self.events)
                if one.event in events and one.partition < 0 and one.fields.get("broker") == broker
            ),
            None,
        )

    def last_of(self, place: Place, event: str) -> Entry | None:
        """The last of these that is about this partition."""
        about = place.id_and_number
        return next(
            (
                one
                for one in reversed(self.events)
                if one.event == event and (one.topic_id, one.partition) == about
            ),
            None,
        )


# -- why a broker takes no part -----------------------------------------------------------------


DOWN = Reason(Code.CLUSTER_DOWN, "the cluster is down", ("tidelog up",))


def absence(known: Known, broker: int) -> Reason | None:
    """Why it can neither lead nor be in sync at this moment; None where it can."""
    if known.states is None:
        return DOWN
    state = known.states.get(broker, "strange")
    remedy = _REMEDIES.get(state)
    match state:
        case "strange":
            what = "is not one of the cluster's brokers"
        case "killed" | "stopped":
            what = _ended(known, broker, state)
        case "paused":
            what = f"is paused{_at(known.last(broker, 'hung'), 'since')}"
        case "starting":
            what = f"starts{_at(known.last(broker, 'started'), 'since')}"
        case _:
            return _not_let_in(known, broker)
    remedies = () if remedy is None else (remedy.format(broker),)
    return Reason(Code.BROKER_AWAY, f"broker {broker} {what}", remedies, broker)


_REMEDIES: Mapping[str, str] = {
    "strange": "tidelog broker add",
    "killed": "tidelog broker start {}",
    "stopped": "tidelog broker start {}",
    "paused": "tidelog broker resume {}",
}


def _not_let_in(known: Known, broker: int) -> Reason | None:
    """Of a process that runs."""
    view = known.image.brokers.get(BrokerId(broker))
    moved = known.last(broker, "hung", "resumed", "started")
    remedies: tuple[str, ...] = ()
    if moved is not None and moved.event == "hung":
        what, remedies = f"hangs{_at(moved, 'since')}", (f"tidelog broker restart {broker}",)
    elif view is None:
        what = "runs, but has not registered yet"
    elif view.fenced:
        what = "runs, but is let in only when it knows all that was decided"
    elif view.stopping:
        what = "is about to stop"
    else:
        return None
    return Reason(Code.BROKER_AWAY, f"broker {broker} {what}", remedies, broker)


def _ended(known: Known, broker: int, state: str) -> str:
    last = known.last(broker, "ended")
    if last is None:
        return f"is down ({state})"
    code = int(last.fields.get("code", 0))
    how = "was stopped" if state == "stopped" else f"ended: {ending(code)},"
    return f"{how}{_at(last)}"


def _at(event: Entry | None, word: str = "at") -> str:
    return "" if event is None else f" {word} {event.at}"


# -- partitions ---------------------------------------------------------------------------------


def of_partition(known: Known, place: Place) -> list[Reason]:
    """What is the matter with it, the worst first; nothing where it is well."""
    view = place.view
    if known.states is None:
        return [DOWN]
    found: list[Reason] = []
    if view.leader == NO_LEADER:
        found.append(_no_leader(known, place))
    else:
        least = min(known.min_in_sync(place.topic), len(view.replicas))
        if len(view.isr) < least:
            found.append(_too_few(place, least))
        found += _missing(known, place)
    if view.adding or view.removing:
        found.append(_moving(known, place))
    if place.should_be_led_by(place.preferred):
        found.append(_not_preferred(known, place))
    if view.lossy_elections:
        found.append(_lost(known, place))
    found += _growing(known, place)
    return found


def _no_leader(known: Known, place: Place) -> Reason:
    view, what = place.view, f"{place.name} has no leader"
    trusted = [one for one in view.replicas if view.trusts(one)]
    away = {broker: absence(known, broker) for broker in view.replicas}
    if any(away[one] is None for one in trusted):
        return Reason(Code.NO_LEADER, f"{what} yet: one is being elected")
    missing = [one for one in map(away.get, trusted or view.last_known) if one is not None]
    why = _only(trusted, missing) if trusted else _files_lost(view.last_known, missing)
    remedies = [remedy for one in missing for remedy in one.remedies]
    if None in away.values():  # somebody is there, whatever it lacks
        remedies.append(f"tidelog leader elect --unclean {place.word}")
    return Reason(Code.NO_LEADER, f"{what}: {why}", tuple(remedies))


def _only(trusted: Sequence[int], missing: Iterable[Reason]) -> str:
    has = _verb(trusted, "has", "have")
    where = listed(one.sentence for one in missing)
    return f"only {_brokers(trusted)} {has} every committed record, and {where}"


def _files_lost(last_known: Sequence[int], missing: Sequence[Reason]) -> str:
    lost = f"{_brokers(last_known)} had every committed record, and lost files"
    if not missing:
        return lost
    where = listed(one.sentence for one in missing)
    return f"{lost}; who has most leads once all are back, but {where}"


def _too_few(place: Place, least: int) -> Reason:
    in_sync = f"{counted(len(place.view.isr), 'replica')} in sync"
    asked = f"min.insync.replicas asks for {least}"
    return Reason(
        Code.UNDER_MIN_ISR, f"{place.name} refuses writes with acks=all: {in_sync}, {asked}"
    )


def _missing(known: Known, place: Place) -> Iterator[Reason]:
    view = place.view
    for broker in view.replicas:
        if broker in view.isr or broker in view.adding:
            continue
        away = absence(known, broker)
        remedies: tuple[str, ...] = ()
        if away is not None:
            why, remedies = away.sentence, away.remedies
        elif broker in known.failed and not known.holds(place, broker):
            why, remedies = _failed(known, broker), _logs_of(broker)
        else:
            why = _catches_up(known, place, broker)
        sentence = f"{place.name} lacks replica {broker}: {why}"
        yield Reason(Code.NOT_IN_SYNC, sentence, remedies, broker)


def _failed(known: Known, broker: int) -> str:
    return f"broker {broker} cannot use {listed(known.failed[broker])} any more"


def _logs_of(broker: int) -> tuple[str, ...]:
    """Where the broker says what went wrong."""
    return (f"tidelog logs broker-{broker}",)


def _catches_up(known: Known, place: Place, broker: int) -> str:
    """With how far it is, where brokers told."""
    has, whole = (
        known.sizes.get((place.topic.name, place.number, one))
        for one in (broker, place.view.leader)
    )
    far = "" if has is None or whole is None else f", it has {size(has)} of {size(whole)}"
    return f"broker {broker} catches up{far}"


def _moving(known: Known, place: Place) -> Reason:
    view = place.view
    parts = []
    if view.adding:
        parts.append(f"{_brokers(view.adding)} {_verb(view.adding, 'gets', 'get')} it")
    if view.removing:
        parts.append(f"{_brokers(view.removing)} {_verb(view.removing, 'gives', 'give')} it up")
    why = [listed(parts)]
    for broker in view.adding:
        away = absence(known, broker)
        if away is not None:
            why.append(away.sentence)
        elif broker not in view.isr:
            why.append(_catches_up(known, place, broker))
    follow = "tidelog partition reassign status"
    return Reason(Code.MOVING, f"{place.name} is being moved: {'; '.join(why)}", (follow,))


def _not_preferred(known: Known, place: Place) -> Reason:
    view, preferred = place.view, place.preferred
    who = f"{place.name} is led by broker {view.leader}, not by the preferred {preferred}"
    if preferred not in view.isr:
        sentence = f"{who}: broker {preferred} is not in sync"
        return Reason(Code.NOT_PREFERRED, sentence, (), preferred)
    sentence = f"{who}: broker {preferred} is in sync, and {_no_election(known)}"
    elect = f"tidelog leader elect {place.word}"
    return Reason(Code.NOT_PREFERRED, sentence, (elect,), preferred)


def _no_election(known: Known) -> str:
    """Why who is in sync again does not lead again."""
    why = "no election was held since"
    if not known.setting("auto.leader.rebalance.enable"):
        return f"{why}, for auto.leader.rebalance.enable is false"
    every = known.setting("leader.imbalance.check.interval.seconds")
    return f"{why}: one is held every {every} s"


def _lost(known: Known, place: Place) -> Reason:
    view = place.view
    times = counted(view.lossy_elections, "time")
    least = f"at least {view.lost_records} are lost" if view.lost_records else "none is known lost"
    who = "to a leader that might lack committed records"
    last = known.last_of(place, "records_lost")
    start = NO_OFFSET if last is None else last.fields.get("from", NO_OFFSET)
    what = "" if start == NO_OFFSET else f"; the last time what may be lost began at {start}"
    return Reason(Code.RECORDS_LOST, f"{place.name} was given {times} {who}: {least}{what}")


# -- compaction ---------------------------------------------------------------------------------


_CAUSES: Mapping[str, str] = {
    "damaged": "a file of it is damaged",
    "disk": "the disk or the operating system refused a step of it",
    "worker_died": "the process that compacts it died",
    "bug": "compaction met a case that its code does not expect",
}


def _growing(known: Known, place: Place) -> Iterator[Reason]:
    """A reason for each replica whose compaction fails."""
    for broker in place.view.replicas:
        since = _not_compacted(known, broker).get(place.id_and_number)
        if since is None:
            continue
        where = f"{place.name} is not compacted on broker {broker}{_at(since, 'since')}"
        again = "compaction is tried again at longer and longer pauses"
        sentence = f"{where}, so its log grows there: {_cause(since)}; {again}"
        remedies = _logs_of(broker)
        if since.fields.get("cause") == "damaged":
            remedies = (f"tidelog log verify {place.word} --broker {broker}", *remedies)
        yield Reason(Code.NOT_COMPACTED, sentence, remedies, BrokerId(broker))


def _cause(failed: Entry) -> str:
    cause, segment = str(failed.fields.get("cause")), failed.fields.get("segment", NO_OFFSET)
    if cause == "damaged" and segment != NO_OFFSET:
        return f"its segment from offset {segment} on is damaged"
    return _CAUSES.get(cause, "the broker's log tells why")


def _not_compacted(known: Known, broker: int) -> dict[tuple[str, int], Entry]:
    """By topic id and partition the first failure of those that last, in the broker's present life.

    One look at all events, however many partitions there are.
    """
    process, incarnation = f"broker-{broker}", 0
    found: dict[tuple[str, int], Entry] = {}
    for one in known.events:
        if one.process != process:
            continue
        if one.incarnation > incarnation:
            incarnation = one.incarnation
            found.clear()  # it has been started again, and has tried nothing yet
        if one.event == "not_compacted":
            found.setdefault((one.topic_id, one.partition), one)
        elif one.event == "compacted_again":
            found.pop((one.topic_id, one.partition), None)
    return found


# -- brokers ------------------------------------------------------------------------------------


def of_broker(known: Known, broker: int) -> list[Reason]:
    """What is the matter with it, and with its partitions; nothing where it is well."""
    away = absence(known, broker)
    if away is DOWN:
        return [DOWN]
    found = [] if away is None else [away]
    if broker in known.failed:
        sentence = f"{_failed(known, broker)}: others lead what lay there, where there are any"
        found.append(Reason(Code.DIRECTORY_FAILED, sentence, _logs_of(broker), broker))
    found += _sick(known, broker)
    hosted = list(hosts(known.image, broker))
    waiting = [one for one in hosted if one.waits_for(broker)]
    if waiting:
        found.append(_waited_for(broker, waiting))
    behind = [one for one in hosted if broker not in one.view.isr]
    if behind:
        found.append(_behind(broker, behind, of_all=len(hosted), is_away=away is not None))
    led_elsewhere = [one for one in hosted if one.should_be_led_by(broker)]
    if led_elsewhere:
        found.append(_leads_less(known, broker, led_elsewhere, is_away=away is not None))
    return found + _grow(known, broker, hosted)


def _sick(known: Known, broker: int) -> Iterator[Reason]:
    for what in known.sick.get(broker, ()):
        sentence = f"its disk is made sick on purpose: {what}"
        yield Reason(Code.SICK_DISK, sentence, (f"tidelog chaos heal {broker}",), broker)


def _waited_for(broker: int, places: Sequence[Place]) -> Reason:
    wait = f"{counted(len(places), 'partition')} {_verb(places, 'waits', 'wait')} for it"
    why = f"without a leader, for it has every committed record: {_named(places)}"
    return Reason(Code.WAITED_FOR, f"{wait} {why}", (), broker)


def _behind(broker: int, places: Sequence[Place], *, of_all: int, is_away: bool) -> Reason:
    yet = "" if is_away else " yet, for it catches up"
    where = f"in {len(places)} of {counted(of_all, 'partition')}{yet}"
    sentence = f"it is not in sync {where}: {_named(places)}"
    return Reason(Code.NOT_IN_SYNC, sentence, (), broker)


def _grow(known: Known, broker: int, hosted: Sequence[Place]) -> list[Reason]:
    """A reason if the compaction of some fails there."""
    failing = _not_compacted(known, broker)
    places = [one for one in hosted if one.id_and_number in failing]
    if not places:
        return []
    what = f"it does not compact {counted(len(places), 'partition')}, whose log grows"
    remedies = (f"tidelog why partition {places[0].word}",)
    return [Reason(Code.NOT_COMPACTED, f"{what}: {_named(places)}", remedies, broker)]


def _leads_less(known: Known, broker: int, places: Sequence[Place], *, is_away: bool) -> Reason:
    count = f"{counted(len(places), 'partition')} that it is the preferred leader of"
    remedies: tuple[str, ...] = ()
    if is_away:
        why = "others took over"
    elif any(broker in one.view.isr for one in places):
        why = _no_election(known)
        remedies = ("tidelog leader elect",)
    else:
        why = "it is not in sync yet"
    sentence = f"it does not lead {count}, {why}: {_named(places)}"
    return Reason(Code.NOT_PREFERRED, sentence, remedies, broker)


def hosts(image: MetadataImage, broker: int) -> Iterator[Place]:
    """The partitions that it has a replica of, by name."""
    for name in sorted(image.names):
        topic = image.names[name]
        for number, view in enumerate(topic.partitions):
            if broker in view.replicas:
                yield Place(topic, number)


# -- words --------------------------------------------------------------------------------------


def _brokers(brokers: Sequence[int]) -> str:
    """`broker 1`, `brokers 1 and 2`."""
    return f"{_verb(brokers, 'broker', 'brokers')} {listed(map(str, brokers))}"


def _verb(of: Sequence[object], one: str, many: str) -> str:
    return one if len(of) == 1 else many


def _named(places: Sequence[Place]) -> str:
    names = [one.name for one in places[:_NAMED_MAX]]
    more = len(places) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
