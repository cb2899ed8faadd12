"""How soon confluent-kafka's consumers have their partitions, from when they subscribe."""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer

from measuring import Figures

PROTOCOLS = ("classic", "consumer")
_PATIENCE_S = 60.0
_POLL_S = 0.001


def consumer_of(bootstrap: str, group: str, protocol: str) -> Consumer:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group}
    settings |= {"group.protocol": protocol, "auto.offset.reset": "earliest", "log_level": 0}
    return Consumer(settings)


def first_record_s(bootstrap: str, topic: str, group: str, protocol: str) -> float:
    """From subscribing, the consumer being made, to the first record in hand."""
    consumer = consumer_of(bootstrap, group, protocol)
    try:
        began = time.monotonic()
        consumer.subscribe([topic])
        message = consumer.poll(_PATIENCE_S)
        took = time.monotonic() - began
    finally:
        consumer.close()
    if message is None or message.error():
        raise SystemExit(f"no record within {_PATIENCE_S} s")
    return took


class _Sharing:
    """One of the consumers that are started together, in a thread of its own."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.owned: frozenset[int] = frozenset()
        self._consumer = consumer
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._stop.is_set():
            self._consumer.poll(_POLL_S)
            self.owned = frozenset(one.partition for one in self._consumer.assignment())
        self._consumer.close()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join()


def shared_s(bootstrap: str, topic: str, group: str, protocol: str, partitions: int) -> float:
    """From when two subscribe to when both have their share of all partitions."""
    consumers = [consumer_of(bootstrap, group, protocol) for _ in range(2)]
    began = time.monotonic()
    both = [_Sharing(consumer, topic) for consumer in consumers]

    def is_shared() -> bool:
        first, second = (one.owned for one in both)
        evenly = abs(len(first) - len(second)) <= 1
        return evenly and not first & second and len(first | second) == partitions

    try:
        return _until(is_shared, began)
    finally:
        for one in both:
            one.ask_to_stop()
        for one in both:
            one.join()


def _until(is_true: Callable[[], bool], began: float) -> float:
    while time.monotonic() < began + _PATIENCE_S:
        if is_true():
            return time.monotonic() - began
        time.sleep(_POLL_S)
    raise SystemExit(f"the partitions were not shared within {_PATIENCE_S} s")


def client_figures(bootstrap: str, topic: str, name: str, partitions: int) -> Figures:
    """One run of either question for each protocol; each in a group of its own."""
    figures: Figures = {}
    for protocol in PROTOCOLS:
        group = f"{name}-{protocol}"
        first = first_record_s(bootstrap, topic, f"{group}-one", protocol)
        both = shared_s(bootstrap, topic, f"{group}-two", protocol, partitions)
        figures[f"first_record_{protocol}_s"] = round(first, 3)
        figures[f"shared_{protocol}_s"] = round(both, 3)
    return figures
