"""Metrics in Prometheus' text form, by its own library, which the extra `metrics` brings."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.tools.metrics_rows import COUNTER, Family

_LOOK_EVERY_S: Final = 0.5
"""Whoever asks more often is told the same again."""
_LOOPBACK: Final = "127.0.0.1"


class _Looks(Collector):
    """Looks when somebody asks; several who ask at one time share a look."""

    def __init__(self, look: Callable[[], Sequence[Family]]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._seen: list[Metric] = []
        self._seen_at = float("-inf")

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            if time.monotonic() - self._seen_at >= _LOOK_EVERY_S:
                self._seen = [_metric(family) for family in self._look()]
                self._seen_at = time.monotonic()
            return self._seen


def _metric(family: Family) -> Metric:
    row = family.metric
    kind = CounterMetricFamily if row.kind == COUNTER else GaugeMetricFamily
    made = kind(row.name, row.help, labels=row.labels)
    for key, value in family.samples:
        made.add_metric(key, value)
    return made


def text_of(found: Sequence[Family]) -> str:
    """Once."""
    return generate_latest(_registry(lambda: found)).decode("utf-8")


def serve(look: Callable[[], Sequence[Family]], port: int) -> tuple[int, Callable[[], None]]:
    """On loopback, in threads of its own; the port, and how to end it. OSError where it is taken.
    A port of 0 takes a free one."""
    server, thread = start_http_server(port, _LOOPBACK, _registry(look))

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, end


def _registry(look: Callable[[], Sequence[Family]]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Looks(look))
    return registry
