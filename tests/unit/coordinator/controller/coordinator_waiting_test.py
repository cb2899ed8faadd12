"""A creation is answered when every live broker knows of it, or when that takes too long."""

import pytest

from harness.machines.controllers import ONE, TWO, Controlled, topic
from tidelog.coordinator.controller.requests import (
    AllocateProducerIds,
    BrokerApplied,
    CreateTopics,
    ProducerIdBlock,
)
from tidelog.kernel.ids import Incarnation, Offset, ProducerId, RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import METADATA_APPLY_WAIT_MS, PRODUCER_ID_BLOCK
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.metadata_records import ProducerIdsAllocated

CREATE = CreateTopics(7, CreateTopicsRequest(topics=[topic()]))


def asked(controlled: Controlled) -> RequestId:
    assert controlled.ask(CREATE) is None
    return controlled.last_asked


def test_a_creation_is_answered_once_the_slowest_live_broker_has_it() -> None:
    controlled = Controlled(ONE, TWO)
    creation = asked(controlled)
    controlled.apply(ONE)
    assert creation not in controlled.replies
    controlled.ask(BrokerApplied(TWO, Incarnation(1), Offset(controlled.image.offset - 1)))
    assert creation not in controlled.replies
    controlled.apply(TWO)
    assert isinstance(controlled.replies[creation], CreateTopicsResponse)


def test_a_broker_that_dies_is_waited_for_no_longer() -> None:
    controlled = Controlled(ONE, TWO)
    creation = asked(controlled)
    controlled.apply(ONE)
    controlled.lose(TWO)
    assert creation in controlled.replies


def test_a_broker_that_hangs_holds_an_answer_up_for_half_a_second_at_most() -> None:
    controlled = Controlled(ONE, TWO)
    creation = asked(controlled)
    end = Instant(controlled.now + ms(METADATA_APPLY_WAIT_MS))
    assert controlled.shard.deadline() == end
    controlled.now = Instant(end - 1)
    controlled.tick()
    assert creation not in controlled.replies
    controlled.now = end
    controlled.tick()
    assert creation in controlled.replies
    assert controlled.shard.deadline() != end


def test_a_refused_creation_waits_for_nobody() -> None:
    controlled = Controlled(ONE, TWO)
    refused = CreateTopics(7, CreateTopicsRequest(topics=[topic("")]))
    assert isinstance(controlled.ask(refused), CreateTopicsResponse)


def test_blocks_of_producer_ids_never_overlap() -> None:
    controlled = Controlled(ONE, TWO)
    blocks = [
        controlled.ask(AllocateProducerIds(broker, Incarnation(1))) for broker in (ONE, TWO, ONE)
    ]
    assert blocks == [
        ProducerIdBlock(ProducerId(first * PRODUCER_ID_BLOCK), PRODUCER_ID_BLOCK)
        for first in range(3)
    ]
    assert controlled.log[-1] == ProducerIdsAllocated(ONE, ProducerId(3 * PRODUCER_ID_BLOCK))


def test_a_life_that_is_over_gets_no_producer_ids() -> None:
    controlled = Controlled(ONE)
    controlled.join(ONE, incarnation=2)
    with pytest.raises(Rejected) as refused:
        controlled.ask(AllocateProducerIds(ONE, Incarnation(1)))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
