"""The topics of the cluster, as much as groups have to know of them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from tidelog.kernel.ids import Uuid


class TopicFacts(NamedTuple):
    id: Uuid
    partitions: int


class Topics(Protocol):
    """What there is now; read anew whenever it is needed."""

    @property
    def version(self) -> int:
        """Moves whenever a topic comes, goes or grows; it may move more often."""
        ...

    def names(self) -> Iterable[str]: ...

    def of_name(self, name: str) -> TopicFacts | None: ...

    def name_of(self, topic: Uuid) -> str | None: ...

    def came(self, name: str) -> int:
        """The version that a topic there is came with; 0 where it was there before all that."""
        ...

    def configs_of(self, group: str) -> Mapping[str, str]:
        """The settings that were given to one group."""
        ...
