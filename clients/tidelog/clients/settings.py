"""What a client may be told, with Kafka's defaults where Kafka has the same setting."""

from dataclasses import dataclass
from enum import IntEnum

from tidelog.kernel.instant import s
from tidelog.kernel.limits import KIB, MIB, REQUEST_BYTES_MAX
from tidelog.wire.codecs import Codec

SOFTWARE_NAME = "tidelog"
SOFTWARE_VERSION = "0.1.0"
"""What ApiVersions tells the broker; `pyproject.toml` says the same."""


class Acks(IntEnum):
    """Whose word makes a record written."""

    NONE = 0
    LEADER = 1
    ALL = -1


class Isolation(IntEnum):
    """Which records of transactions a reader sees."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Of each connection."""

    client_id: str = "tidelog"
    connect_timeout_ns: int = s(10)
    request_timeout_ns: int = s(30)
    in_flight_max: int = 5
    idle_ns_max: int = s(540)
    """A connection that was quiet for longer is not used again. A broker closes it a minute later,
    and a request that was on its way then would be lost."""

    def __post_init__(self) -> None:
        assert self.in_flight_max >= 1
        assert self.connect_timeout_ns > 0
        assert self.request_timeout_ns > 0
        assert self.idle_ns_max > 0


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How records become batches, and when a batch counts as written."""

    acks: Acks = Acks.ALL
    codec: Codec = Codec.NONE
    batch_bytes: int = 64 * KIB
    linger_ns: int = 5_000_000
    request_bytes: int = MIB
    buffer_bytes: int = 32 * MIB
    request_timeout_ns: int = s(30)
    delivery_timeout_ns: int = s(120)
    in_flight_per_partition: int = 5
    transactional_id: str | None = None
    transaction_timeout_ns: int = s(60)
    """Then the cluster aborts what is open."""

    def __post_init__(self) -> None:
        assert 0 < self.batch_bytes <= self.buffer_bytes
        assert 0 < self.request_bytes <= REQUEST_BYTES_MAX
        assert self.request_timeout_ns <= self.delivery_timeout_ns
        assert 1 <= self.in_flight_per_partition <= 5, "the broker remembers five batches"
        assert self.transactional_id is None or self.acks is Acks.ALL

    @property
    def idempotent(self) -> bool:
        """The broker drops repeats: possible only where it answers for all its replicas."""
        return self.acks is Acks.ALL


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How much is fetched at once, and what is seen of it."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_wait_ms: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 16 * MIB
    partition_bytes_max: int = MIB
    request_timeout_ns: int = s(30)

    def __post_init__(self) -> None:
        assert 0 <= self.fetch_bytes_min <= self.fetch_bytes_max <= REQUEST_BYTES_MAX
        assert 0 < self.partition_bytes_max <= self.fetch_bytes_max
        assert self.fetch_wait_ms * 1_000_000 < self.request_timeout_ns
