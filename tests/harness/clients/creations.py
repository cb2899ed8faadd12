"""Topics made and deleted one after the other by a raw client, with what it was answered."""

import threading
from dataclasses import dataclass, field

from harness.clients.raw_socket import RawClient
from harness.processes.cluster import WAIT_S, until
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.messages import k19_create_topics as k19
from tidelog.wire.messages import k20_delete_topics as k20


def create(client: RawClient, name: str, partitions: int = 1) -> ErrorCode:
    topic = k19.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
    return ErrorCode(client.ask(k19.API, 7, request).topics[0].error_code)


def delete(client: RawClient, name: str) -> ErrorCode:
    request = k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name=name)], timeout_ms=5_000)
    return ErrorCode(client.ask(k20.API, 6, request).responses[0].error_code)


def topics(client: RawClient) -> dict[str, k03.MetadataResponseTopic]:
    request = k03.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = client.ask(k03.API, 12, request)
    return {topic.name: topic for topic in answer.topics}


@dataclass
class Creations:
    """Creates and deletes topics until told to end; remembers what it was answered."""

    bootstrap: str
    answered: dict[str, ErrorCode] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    maybe_deleted: set[str] = field(default_factory=set)
    """The coordinator died before it could say."""
    ended: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            self._go_on()
        finally:
            self._over.set()

    def finish(self) -> None:
        """Nothing is under way any more: whoever stops the cluster does not break in on it."""
        self.ended.set()
        assert self._over.wait(WAIT_S), "a request is not answered"

    def _go_on(self) -> None:
        number = 0
        with RawClient(self.bootstrap) as client:
            while not self.ended.is_set():
                name = f"t{number}"
                self.answered[name] = create(client, name)
                if number % 5 == 4:
                    before = f"t{number - 1}"
                    told = delete(client, before)
                    if told is ErrorCode.NONE:
                        self.deleted.add(before)
                    elif told is ErrorCode.REQUEST_TIMED_OUT:
                        self.maybe_deleted.add(before)
                number += 1

    def wait_for(self, count: int) -> None:
        until(lambda: self.good() >= count, f"{count} topics are made")

    def good(self) -> int:
        return sum(code is ErrorCode.NONE for code in list(self.answered.values()))
