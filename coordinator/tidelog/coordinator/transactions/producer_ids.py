"""Producer ids in stock: blocks of them come from the controller, ahead of who needs one."""

from collections import deque
from typing import Final

from tidelog.kernel.ids import ProducerId
from tidelog.kernel.limits import PRODUCER_ID_BLOCK

_LOW: Final = PRODUCER_ID_BLOCK // 2


class ProducerIds:
    """Invariant: no id is given twice."""

    def __init__(self) -> None:
        self._blocks: deque[range] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    @property
    def is_low(self) -> bool:
        """Whether to draw the next block already, so that nobody has to wait for it."""
        return len(self) < _LOW

    def add(self, first: ProducerId, count: int) -> None:
        assert count > 0, count
        self._blocks.append(range(first, first + count))

    def take(self) -> ProducerId | None:
        """The next one; None where there is none in stock."""
        if not self._blocks:
            return None
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return ProducerId(block[0])
