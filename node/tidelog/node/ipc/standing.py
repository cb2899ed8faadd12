"""Whether the cluster still counts on this life of this broker. Pure.

A broker that was stopped for a while wakes up in the middle of whatever it did, and believes
itself to be the leader it was. So nothing is begun and no answer is sent before a look at the
broker's fence word.
"""

from collections.abc import Callable

from tidelog.kernel.ids import BrokerId, Offset
from tidelog.node.ipc.layout import Fences

_NEVER_FENCED = Offset((1 << 63) - 1)


class Standing:
    """Looked at in every turn of the broker's loop, first of all.

    Invariant: for each epoch that is lost, `on_lost` is called once, by whoever looks first.
    """

    def __init__(self, fences: Fences, me: BrokerId, on_lost: Callable[[Offset], None]) -> None:
        self._is_fenced = fences.is_fenced
        self._me = me
        self._on_lost = on_lost
        self._epoch = _NEVER_FENCED
        self._lost = False

    def registered(self, epoch: Offset) -> None:
        """The cluster takes this broker (back), under this broker epoch."""
        self._epoch = epoch
        self._lost = False

    def is_lost(self) -> bool:
        """Whether this life was given up, and no other has begun yet. What is to be done about
        that has been done when this returns."""
        if not self._lost and self._is_fenced(self._me, self._epoch):
            self.given_up()
        return self._lost

    def given_up(self) -> None:
        """The metadata says so: of a broker that it does not know any more, a coordinator that took
        over puts up no word."""
        if not self._lost:
            self._lost = True
            self._on_lost(self._epoch)
