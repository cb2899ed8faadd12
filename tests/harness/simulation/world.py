"""What one broker's process finds around it in a simulated cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.kernel.instant import Instant
from tidelog.node.ipc.events import Kind, Value
from tidelog.node.metadata import link
from tidelog.node.replica.replicas import Replica

if TYPE_CHECKING:
    from harness.simulation.broker import Life
    from harness.simulation.transactions import Ways


class Process(Protocol):
    """What is connected to the coordinator: a life of a broker, or of what coordinates
    transactions."""

    connection: int
    paused: bool

    @property
    def me(self) -> BrokerId: ...

    @property
    def incarnation(self) -> Incarnation: ...

    def turn(self, action: Callable[[], None]) -> None: ...

    def link_step(self, event: link.Event) -> None: ...


class World(Protocol):
    """What a broker's process finds around it."""

    transactions: "Ways"
    full_at: dict[BrokerId, Instant]
    """What each broker has on the board: when it last found no room."""

    @property
    def now(self) -> Instant: ...

    def kill(self, broker: BrokerId) -> None: ...

    def later(self, process: Process, when: Instant, action: Callable[[], None]) -> None:
        """Have it done then; by a process that stands still, as soon as it goes on."""
        ...

    def push(self, life: "Life", peer: BrokerId, parts: list[bytes]) -> bool: ...

    def to_coordinator(self, process: Process, frame: bytes) -> None: ...

    def noted(
        self, life: "Life", kind: Kind, replica: Replica, values: tuple[Value, ...]
    ) -> None: ...

    def turned(self, life: "Life") -> None:
        """A turn of its loop is over: look at everything."""
        ...
