"""A socket that nobody closes is told, but for those that kafka-python drops."""

import gc
import socket
import sys
import warnings
from collections.abc import Callable, Iterator

from harness.clients import kafka_python
from harness.clients.dropped_sockets import forgive_kafka_python

assert kafka_python.KafkaPython.name == "kafka-python", "it is loaded"


class Never:
    """Of the client's loop, what it asks while a connection is under way."""

    def __await__(self) -> Iterator[None]:
        yield

    def wait_write(self, _socket: socket.socket, **_limit: object) -> "Never":
        return self


def connect_and_close() -> None:
    net = sys.modules["kafka.net.inet"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        way = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", listener.getsockname())
        connecting = net.KafkaNetSocket().connect(Never(), way)
        connecting.send(None)
        connecting.close()


def told_of(drop: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        drop()
        gc.collect()
    return [str(one.message) for one in told if issubclass(one.category, ResourceWarning)]


def test_a_socket_that_kafka_python_drops_fails_no_other_test() -> None:
    forgive_kafka_python()
    assert told_of(connect_and_close) == []
    assert len(told_of(socket.socket)) == 1
