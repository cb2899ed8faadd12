"""Latencies of many tasks, counted in classes that grow by a twentieth: they add up."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

_GROWTH: Final = 1.05
_FIRST_NS: Final = 10_000.0
CLASSES: Final = 400
"""Up to half an hour, far beyond every delivery time-out."""
PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}


class Latencies:
    """How many rows were acknowledged within how long."""

    def __init__(self, counts: npt.NDArray[np.int64] | None = None) -> None:
        self.counts = np.zeros(CLASSES, np.int64) if counts is None else counts

    def add(self, latency_ns: int, rows: int) -> None:
        at = np.log(max(latency_ns, _FIRST_NS) / _FIRST_NS) / np.log(_GROWTH)
        self.counts[min(int(np.ceil(at)), CLASSES - 1)] += rows

    @classmethod
    def together(cls, many: Iterable["Latencies"]) -> "Latencies":
        total = cls()
        for one in many:
            total.counts += one.counts
        return total

    def percentiles_ms(self) -> dict[str, float] | None:
        """Each at most a twentieth too large; None where nothing was counted."""
        total = int(self.counts.sum())
        if not total:
            return None
        sums = np.cumsum(self.counts)
        return {
            name: round(
                _FIRST_NS * _GROWTH ** int(np.searchsorted(sums, np.ceil(share * total))) / 1e6, 3
            )
            for name, share in PERCENTILES.items()
        }
