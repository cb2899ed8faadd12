"""Why a group rebalances, as far as its members do not say it: topics that came, grew or went."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from tidelog.node.groups.embedded import Subscription, read_subscription
from tidelog.node.groups.history import Trigger
from tidelog.node.groups.topics import Topics

_NAMED_MAX: Final = 3
_BY_WEIGHT: Final = (Trigger.GROWTH, Trigger.TOPIC, Trigger.TOPIC_GONE)
"""Of several that befell topics the first is told."""


class TopicsThen:
    """What there was of a group's topics when it last shared them out."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._sizes: dict[str, int] = {}
        self._version: int | None = None

    def note(self, names: Iterable[str]) -> None:
        """Now it does."""
        self._version = self._topics.version
        found = ((name, self._topics.of_name(name)) for name in names)
        self._sizes = {name: facts.partitions for name, facts in found if facts is not None}

    @property
    def names(self) -> AbstractSet[str]:
        """Those that there were."""
        return self._sizes.keys()

    def change(self, names: AbstractSet[str]) -> tuple[Trigger, str] | None:
        """What befell these topics since, and in words; None where nothing did."""
        befell: dict[Trigger, list[str]] = {}
        for name in sorted(names):
            what = self._befell(name)
            if what is not None:
                befell.setdefault(what, []).append(name)
        for trigger in _BY_WEIGHT:
            if trigger in befell:
                return trigger, self._words(trigger, befell[trigger])
        return None

    def _befell(self, name: str) -> Trigger | None:
        facts, before = self._topics.of_name(name), self._sizes.get(name)
        if facts is None:
            return None if before is None else Trigger.TOPIC_GONE
        if before is None:
            return Trigger.TOPIC if self._is_new(name) else None
        return Trigger.GROWTH if facts.partitions > before else None

    def _words(self, trigger: Trigger, names: Sequence[str]) -> str:
        if trigger is Trigger.GROWTH:
            return _listed([self._growth(name) for name in names])
        is_one = len(names) == 1
        if trigger is Trigger.TOPIC:
            return f"{_listed(names)} {'came' if is_one else 'have come'}"
        return f"{_listed(names)} {'is' if is_one else 'are'} gone"

    def _growth(self, name: str) -> str:
        facts = self._topics.of_name(name)
        assert facts is not None, name
        return f"{name} grew from {self._sizes[name]} to {facts.partitions} partitions"

    def _is_new(self, name: str) -> bool:
        return self._version is not None and self._topics.came(name) > self._version


def of_rejoin(
    then: TopicsThen, before: bytes, after: bytes | None, *, is_leader: bool
) -> tuple[Trigger, str]:
    """Why a member of a classic group joins again, by what it said under the chosen protocol and
    says now; None where it does not offer that any more."""
    if after is None:
        return Trigger.SUBSCRIPTION, "it does not offer the group's assignor any more"
    asks = Trigger.LEADER if is_leader else Trigger.SUBSCRIPTION
    had, wants = read_subscription(before), read_subscription(after)
    if had is None or wants is None:
        return asks, ""
    if had.topics != wants.topics:
        return of_topics(then, had.topics, wants.topics)
    change = then.change(wants.topics | then.names)
    if change is not None:
        return change
    left = _given_up(had, wants)
    return (Trigger.GIVEN_UP, f"it gave up {left}") if left else (asks, "")


def of_topics(
    then: TopicsThen, had: AbstractSet[str], wants: AbstractSet[str]
) -> tuple[Trigger, str]:
    """Why a member reads other topics: because of what there is, or of its own accord."""
    more, less = wants - had, had - wants
    change = then.change(more | less)
    if change is not None and change[0] is not Trigger.GROWTH:
        return change
    parts = []
    if more:
        parts.append(f"it reads {_listed(sorted(more))} too")
    if less:
        parts.append(f"it does not read {_listed(sorted(less))} any more")
    return Trigger.SUBSCRIPTION, ", ".join(parts)


def _given_up(had: Subscription, wants: Subscription) -> str:
    left = {
        name: had.owned[name] - wants.owned.get(name, frozenset()) for name in sorted(had.owned)
    }
    words = [f"{name}:{','.join(map(str, sorted(of)))}" for name, of in left.items() if of]
    return _listed(words) if words else ""


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _NAMED_MAX
    shown = ", ".join(words[:_NAMED_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
