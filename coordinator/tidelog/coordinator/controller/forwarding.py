"""Clients' frames that brokers pass on: bytes into requests, replies into bytes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from tidelog.coordinator.controller.requests import (
    AlterConfigs,
    AlterReassignments,
    ControllerReply,
    ControllerRequest,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    IncrementalAlterConfigs,
    UnregisterBroker,
    UpdateFeatures,
)
from tidelog.node.deleting import asked_topics
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.frame import decode_known, encode_response, joined
from tidelog.wire.header import AnyApi, RequestHeader
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages import k20_delete_topics as deletion
from tidelog.wire.messages import k33_alter_configs as replacing
from tidelog.wire.messages import k37_create_partitions as growth
from tidelog.wire.messages import k43_elect_leaders as electing
from tidelog.wire.messages import k44_incremental_alter_configs as altering
from tidelog.wire.messages import k45_alter_partition_reassignments as reassigning
from tidelog.wire.messages import k55_describe_quorum as quorum
from tidelog.wire.messages import k57_update_features as features
from tidelog.wire.messages import k64_unregister_broker as unregistering


class _Kind(Struct, frozen=True):
    api: AnyApi
    request: Callable[[int, Any], ControllerRequest]
    refusal: Callable[[Any, Refusal], ControllerReply]


def _refused_creation(
    request: creation.CreateTopicsRequest, refusal: Refusal
) -> creation.CreateTopicsResponse:
    return creation.CreateTopicsResponse(
        topics=[
            creation.CreatableTopicResult(
                name=name, error_code=refusal.code, error_message=refusal.detail or None, configs=[]
            )
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


def _refused_deletion(
    request: deletion.DeleteTopicsRequest, refusal: Refusal
) -> deletion.DeleteTopicsResponse:
    return deletion.DeleteTopicsResponse(
        responses=[
            deletion.DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=refusal.code,
                error_message=refusal.detail or None,
            )
            for name, topic_id in dict.fromkeys(
                (state.name, state.topic_id) for state in asked_topics(request)
            )
        ]
    )


def _refused_growth(
    request: growth.CreatePartitionsRequest, refusal: Refusal
) -> growth.CreatePartitionsResponse:
    return growth.CreatePartitionsResponse(
        results=[
            growth.CreatePartitionsTopicResult(
                name=name, error_code=refusal.code, error_message=refusal.detail or None
            )
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


def _refused_replacing(
    request: replacing.AlterConfigsRequest, refusal: Refusal
) -> replacing.AlterConfigsResponse:
    return replacing.AlterConfigsResponse(
        responses=[
            replacing.AlterConfigsResourceResponse(
                error_code=refusal.code,
                error_message=refusal.detail or None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
        ]
    )


def _refused_altering(
    request: altering.IncrementalAlterConfigsRequest, refusal: Refusal
) -> altering.IncrementalAlterConfigsResponse:
    return altering.IncrementalAlterConfigsResponse(
        responses=[
            altering.AlterConfigsResourceResponse(
                error_code=refusal.code,
                error_message=refusal.detail or None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
        ]
    )


def _refused_election(
    request: electing.ElectLeadersRequest, refusal: Refusal
) -> electing.ElectLeadersResponse:
    # Version 0 has no code for the whole: each partition that was named says why.
    return electing.ElectLeadersResponse(
        error_code=refusal.code,
        replica_election_results=[
            electing.ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    electing.PartitionResult(
                        partition_id=partition,
                        error_code=refusal.code,
                        error_message=refusal.detail or None,
                    )
                    for partition in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )


def _refused_update(
    _request: features.UpdateFeaturesRequest, refusal: Refusal
) -> features.UpdateFeaturesResponse:
    return features.UpdateFeaturesResponse(
        error_code=refusal.code, error_message=refusal.detail or None
    )


def _refused_unregistering(
    _request: unregistering.UnregisterBrokerRequest, refusal: Refusal
) -> unregistering.UnregisterBrokerResponse:
    return unregistering.UnregisterBrokerResponse(
        error_code=refusal.code, error_message=refusal.detail or None
    )


def _refused_reassignment(
    request: reassigning.AlterPartitionReassignmentsRequest, refusal: Refusal
) -> reassigning.AlterPartitionReassignmentsResponse:
    return reassigning.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=refusal.code,
        error_message=refusal.detail or None,
        responses=[],
    )


_KINDS: Final[Mapping[int, _Kind]] = {
    kind.api.key: kind
    for kind in (
        _Kind(creation.API, CreateTopics, _refused_creation),
        _Kind(deletion.API, DeleteTopics, _refused_deletion),
        _Kind(growth.API, CreatePartitions, _refused_growth),
        _Kind(replacing.API, AlterConfigs, _refused_replacing),
        _Kind(electing.API, ElectLeaders, _refused_election),
        _Kind(altering.API, IncrementalAlterConfigs, _refused_altering),
        _Kind(features.API, UpdateFeatures, _refused_update),
        _Kind(unregistering.API, UnregisterBroker, _refused_unregistering),
        _Kind(reassigning.API, AlterReassignments, _refused_reassignment),
    )
}
_APIS: Final[Mapping[int, AnyApi]] = {
    **{key: kind.api for key, kind in _KINDS.items()},
    quorum.API.key: quorum.API,  # told of what is committed: nothing is decided
}


class Forwarded(Struct, frozen=True):
    """One frame read; it knows how to answer itself."""

    header: RequestHeader
    message: Any

    @classmethod
    def read(cls, frame: bytes) -> "Forwarded":
        """WireError where the frame is none of ours."""
        return cls(*decode_known(frame, _APIS))

    def request(self) -> ControllerRequest | quorum.DescribeQuorumRequest:
        """What is to be decided; or what is asked of the metadata log itself."""
        if isinstance(self.message, quorum.DescribeQuorumRequest):
            return self.message
        return _KINDS[self.header.api_key].request(self.header.version, self.message)

    def answer(self, reply: ControllerReply | quorum.DescribeQuorumResponse | Refusal) -> bytes:
        """The answer's frame without its size, as the client gets it; one of REQUEST_FAULTS if it
        cannot be encoded. A refusal always can: it repeats nothing but the request's own names."""
        api = _APIS[self.header.api_key]
        if isinstance(reply, Refusal):
            reply = _KINDS[api.key].refusal(self.message, reply)
        assert isinstance(reply, api.response), reply
        pieces = encode_response(api, self.header.version, self.header.correlation_id, reply)
        return joined(pieces)[4:]
