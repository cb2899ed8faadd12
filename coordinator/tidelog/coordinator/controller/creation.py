"""CreateTopics: what is refused, and the records of what is not.

One topic's failure never touches its neighbours in the same request; what succeeds is written as
one batch.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field

from tidelog.coordinator.controller import names, placement
from tidelog.coordinator.controller.draws import Draws
from tidelog.coordinator.controller.topic_configs import (
    checked_configs,
    effective_configs,
)
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.kernel.limits import PARTITIONS_IN_CLUSTER_MAX, PARTITIONS_PER_DECISION_MAX
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.origins import TopicSettings
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.metadata_records import (
    ConfigChanged,
    MetadataRecord,
    PartitionCreated,
    PartitionView,
    ResourceKind,
    TopicCreated,
)

TOPICS_HINTED_MAX: Final = 20


class _Batch(Struct):
    """What a request has decided so far."""

    names: set[str] = field(default_factory=set)
    partitions: int = 0
    records: list[MetadataRecord] = field(default_factory=list)


class TopicCreation:
    """Decides one CreateTopics request."""

    def __init__(self, image: MetadataImage, settings: ControllerSettings, draws: Draws) -> None:
        self._image = image
        self._settings = settings
        self._draws = draws
        layers = settings.layers(image)
        self._given = layers.effective()
        self._inherited = TopicSettings(layers)
        self._hinting = True
        self._batch = _Batch()
        self._unified: dict[str, str] | None = None

    def decide(
        self, request: CreateTopicsRequest
    ) -> tuple[tuple[MetadataRecord, ...], CreateTopicsResponse]:
        if len(request.topics) > PARTITIONS_PER_DECISION_MAX:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"{len(request.topics)} topics in one request, the most allowed is "
                f"{PARTITIONS_PER_DECISION_MAX}.",
            )
        self._hinting = len(request.topics) <= TOPICS_HINTED_MAX
        counts = Counter(topic.name for topic in request.topics)
        results: dict[str, CreatableTopicResult] = {}
        for topic in request.topics:
            if topic.name not in results:
                results[topic.name] = self._result(
                    topic, twice=counts[topic.name] > 1, validate_only=request.validate_only
                )
        records = () if request.validate_only else tuple(self._batch.records)
        return records, CreateTopicsResponse(topics=list(results.values()))

    def _result(
        self, topic: CreatableTopic, *, twice: bool, validate_only: bool
    ) -> CreatableTopicResult:
        try:
            self._check_name(topic.name, twice=twice)
            return self._create(topic, validate_only=validate_only)
        except Rejected as refused:
            return CreatableTopicResult(
                name=topic.name,
                error_code=refused.code,
                error_message=refused.detail or None,
                configs=[],
            )

    def _create(self, topic: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
        configs = checked_configs(topic.configs, self._given, hinting=self._hinting)
        partitions = placement.place(topic, self._image, self._settings, self._draws)
        self._check_room(len(partitions))
        # Nothing is made, so there is no id to tell.
        topic_id = ZERO_UUID if validate_only else self._new_id()
        self._batch.names.add(topic.name)
        self._batch.partitions += len(partitions)
        if self._unified is not None:
            self._unified.setdefault(names.unified(topic.name), topic.name)
        self._batch.records += _records(topic.name, topic_id, configs, partitions)
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=effective_configs(configs, self._inherited),
        )

    def _check_name(self, name: str, *, twice: bool) -> None:
        if twice:
            raise Rejected(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        fault = names.fault(name)
        if fault is not None:
            raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name == names.METADATA_TOPIC:
            raise Rejected(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        if name in self._image.names:
            raise Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._colliding(name)
        if other is not None:
            raise Rejected(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )

    def _colliding(self, name: str) -> str | None:
        unified = names.unified(name)
        if "_" not in unified:
            return None
        if self._unified is None:
            taken = (*self._image.names, *self._batch.names)
            self._unified = {names.unified(one): one for one in taken}
        return self._unified.get(unified)

    def _check_room(self, partitions: int) -> None:
        if self._batch.partitions + partitions > PARTITIONS_PER_DECISION_MAX:
            raise Rejected(
                ErrorCode.INVALID_PARTITIONS, "Excessively large number of partitions per request."
            )
        taken = self._image.partitions_count + self._batch.partitions
        if taken + partitions > PARTITIONS_IN_CLUSTER_MAX:
            raise Rejected(
                ErrorCode.INVALID_PARTITIONS,
                f"The cluster has {taken} partitions, {partitions} more would pass its limit of "
                f"{PARTITIONS_IN_CLUSTER_MAX}.",
            )

    def _new_id(self) -> Uuid:
        """Never reserved, never one that lives, and never one that a shell takes for an option."""
        while True:
            topic_id = Uuid(self._draws.getrandbits(128).to_bytes(16, "big"))
            starts_with_dash = topic_id[0] >> 2 == 62  # base64url's digit for '-'
            reserved = not any(topic_id[:12])
            if not starts_with_dash and not reserved and topic_id not in self._image.topics:
                return topic_id


def _records(
    name: str, topic_id: Uuid, configs: dict[str, str], partitions: Sequence[PartitionView]
) -> list[MetadataRecord]:
    return [
        TopicCreated(topic_id, name),
        *(ConfigChanged(ResourceKind.TOPIC, name, key, value) for key, value in configs.items()),
        *(PartitionCreated(topic_id, partition, view) for partition, view in enumerate(partitions)),
    ]
