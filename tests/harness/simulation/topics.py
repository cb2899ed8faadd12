"""Topics of a simulated cluster, made and changed by way of a broker, as clients do."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from harness.simulation.broker import Life
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages import k20_delete_topics as deletion
from tidelog.wire.messages import k44_incremental_alter_configs as altering
from tidelog.wire.messages import k45_alter_partition_reassignments as reassigning
from tidelog.wire.messages import k57_update_features as updating
from tidelog.wire.metadata_records import ResourceKind

ANY_WAY = 2
"""UpdateFeatures may lower a level as well as raise it."""


class TopicRequests(ABC):
    """What a cluster is asked for through the first of its brokers."""

    lives: dict[BrokerId, Life]

    @property
    @abstractmethod
    def now(self) -> Instant: ...

    @abstractmethod
    def until(self, true: Callable[[], bool], *, within_ms: float = 30_000) -> None: ...

    def create(
        self, name: str = "t", *replicas: BrokerId, partitions: int = 1, **configs: str
    ) -> None:
        """A topic on these brokers, the first of which leads; known everywhere afterwards."""
        brokers = [*replicas] or list(self.lives)
        frame = self._forward(_creation(name, brokers, partitions, configs))
        _, answer = decode_response(creation.API, 7, memoryview(frame))
        assert [row.error_code for row in answer.topics] == [0], answer
        self.until(lambda: all(name in life.link.image.names for life in self.lives.values()))

    def begin_create(self, life: Life, name: str, *replicas: BrokerId, **configs: str) -> None:
        """And do not wait for it."""
        self._begin(life, _creation(name, [*replicas], 1, configs))

    def delete(self, name: str) -> None:
        self._forward(_deletion(name))

    def begin_delete(self, life: Life, name: str) -> None:
        """And do not wait for it."""
        self._begin(life, _deletion(name))

    def configure(self, topic: str, name: str, value: str) -> None:
        self._forward(_alteration(topic, name, value))

    def configure_all(self, name: str, value: str) -> None:
        """A setting of all brokers."""
        self._forward(_alteration("", name, value))

    def begin_configure(self, life: Life, topic: str, name: str, value: str) -> None:
        """And do not wait for it."""
        self._begin(life, _alteration(topic, name, value))

    def begin_set_level(self, life: Life, feature: str, level: int) -> None:
        """Raise or lower a feature's level, and do not wait for it."""
        update = updating.FeatureUpdateKey(
            feature=feature, max_version_level=level, upgrade_type=ANY_WAY
        )
        request = updating.UpdateFeaturesRequest(feature_updates=[update])
        self._begin(life, joined(encode_request(updating.API, 1, 1, None, request)))

    def reassign(self, *replicas: BrokerId, topic: str = "t", partition: int = 0) -> list[int]:
        """To these replicas; to none at all: what is under way is cancelled. The error code."""
        frame = self._forward(_reassignment(topic, partition, replicas))
        _, answer = decode_response(reassigning.API, 1, memoryview(frame))
        return [answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)]

    def begin_reassign(
        self, life: Life, *replicas: BrokerId, topic: str = "t", partition: int = 0
    ) -> None:
        """And do not wait for it."""
        self._begin(life, _reassignment(topic, partition, replicas))

    def _begin(self, life: Life, frame: bytes) -> None:
        deadline = Instant(self.now + ms(10_000))
        key = int.from_bytes(frame[4:6], "big")
        life.turn(lambda: life.forward(key, frame[4:], "127.0.0.1:1", deadline, lambda _: None))

    def _forward(self, frame: bytes) -> bytes:
        life = next(iter(self.lives.values()))
        results: list[bytes] = []

        def done(result: object) -> None:
            assert isinstance(result, bytes), result
            results.append(result)

        deadline = Instant(self.now + ms(10_000))
        key = int.from_bytes(frame[4:6], "big")
        life.turn(lambda: life.forward(key, frame[4:], "127.0.0.1:1", deadline, done))
        self.until(lambda: bool(results))
        return results[0]


def _creation(
    name: str, brokers: list[BrokerId], partitions: int, configs: dict[str, str]
) -> bytes:
    topic = creation.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        configs=[
            creation.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
        assignments=[
            creation.CreatableReplicaAssignment(
                partition_index=at,
                broker_ids=_from(brokers, at),
            )
            for at in range(partitions)
        ],
    )
    request = creation.CreateTopicsRequest(topics=[topic])
    return joined(encode_request(creation.API, 7, 1, None, request))


def _deletion(name: str) -> bytes:
    state = deletion.DeleteTopicState(name=name)
    request = deletion.DeleteTopicsRequest(topics=[state])
    return joined(encode_request(deletion.API, 6, 1, None, request))


def _from(brokers: list[BrokerId], at: int) -> list[int]:
    """All of them, in a circle, from that place on."""
    first = at % len(brokers)
    return [*brokers[first:], *brokers[:first]]


def _reassignment(topic: str, partition: int, replicas: tuple[BrokerId, ...]) -> bytes:
    row = reassigning.ReassignablePartition(
        partition_index=partition, replicas=[*replicas] if replicas else None
    )
    request = reassigning.AlterPartitionReassignmentsRequest(
        topics=[reassigning.ReassignableTopic(name=topic, partitions=[row])]
    )
    return joined(encode_request(reassigning.API, 1, 1, None, request))


def _alteration(topic: str, name: str, value: str) -> bytes:
    entry = altering.AlterableConfig(name=name, config_operation=0, value=value)
    kind = ResourceKind.TOPIC if topic else ResourceKind.BROKER
    row = altering.AlterConfigsResource(resource_type=kind, resource_name=topic, configs=[entry])
    request = altering.IncrementalAlterConfigsRequest(resources=[row])
    return joined(encode_request(altering.API, 1, 1, None, request))
