"""The clients by name, and who of them is on this machine."""

import shutil

from harness.clients.aio import AioKafka
from harness.clients.confluent import Confluent
from harness.clients.facts import Reader, Writer
from harness.clients.kafka_python import KafkaPython
from harness.clients.programs import Franz, KafkaJs
from harness.suite.need import need, required

MAKERS: dict[str, type[Confluent | KafkaPython | AioKafka | Franz | KafkaJs]] = {
    client.name: client for client in (Confluent, KafkaPython, AioKafka, Franz, KafkaJs)
}
NEEDS = {Franz.name: ("go",), KafkaJs.name: ("node", "npm")}

WRITERS = tuple(MAKERS)
READERS = (Confluent.name, KafkaPython.name, AioKafka.name, Franz.name)
"""kafkajs reads only as a member of a group."""


def writer(name: str, bootstrap: str) -> Writer:
    """The client of this name; skips the running test where its runtime is missing."""
    need(*NEEDS.get(name, ()))
    return MAKERS[name](bootstrap)


def reader(name: str, bootstrap: str) -> Reader:
    """The same, for a client that consumes."""
    need(*NEEDS.get(name, ()))
    client = MAKERS[name](bootstrap)
    assert isinstance(client, Reader)
    return client


def present_readers(bootstrap: str) -> list[Reader]:
    """Every client on this machine that consumes; what the run requires is never left out."""
    return [reader(name, bootstrap) for name in READERS if _present(name)]


def present_writers(bootstrap: str) -> list[Writer]:
    """Every client on this machine that produces; what the run requires is never left out."""
    return [writer(name, bootstrap) for name in WRITERS if _present(name)]


def _present(name: str) -> bool:
    programs = NEEDS.get(name, ())
    return bool(required().intersection(programs)) or all(map(shutil.which, programs))
