"""All brokers restarted in turn, so that clients hardly notice."""

import time
from collections.abc import Sequence

from tidelog.clients.admin.elections import elect_leaders
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import ClusterView, refresh
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.connecting import connected
from tidelog.tools.output import CliError, Target, counted
from tidelog.tools.waiting import until_all_in_sync
from tidelog.wire.errors import ErrorCode


class Roll:
    """What was before it, and what must be true between two brokers.

    Nothing is restarted while a partition lacks a replica: it may be the one to go. What a broker
    led as the preferred replica it leads again before the next one goes, so that each partition
    moves there and back once, and nobody ends up with the leaderships of all.

    A broker is back before its clients are: one that was refused a connection tries again only some
    tenths of a second later. So it rests before it leads; else clients would wait for it, and
    where all brokers went too soon after each other, for all of them.
    """

    def __init__(self, target: Target, *, timeout_s: float, rest_s: float) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._rest_s = rest_s
        self._preferred: dict[int, list[TopicPartition]] | None = None

    def wait_in_sync(self) -> None:
        """Every partition is led and in sync; who led then is remembered the first time."""
        until_all_in_sync(self._target, self._timeout_s)
        if self._preferred is None:
            with connected(self._target) as client:
                client.run(refresh(client.view, None))
                self._preferred = _led_as_preferred(client.view)

    def settle(self, broker: int) -> str:
        """It is back: wait until it is in sync everywhere, and give it back what it led."""
        assert self._preferred is not None
        self.wait_in_sync()
        time.sleep(self._rest_s)
        led = self._preferred.get(broker, [])
        with connected(self._target) as client:
            elected = _elected(client, broker, led)
        return (
            f"broker {broker}: all is in sync again, "
            f"and it leads {counted(elected, 'partition')} again"
        )

    def stopped(self, why: Exception, left: Sequence[int]) -> CliError:
        """The sentence for a roll that cannot go on."""
        code = why.code if isinstance(why, CliError) else getattr(why, "code", 1)
        said = why.message if isinstance(why, CliError) else str(why)
        if not left:
            return CliError(f"{said} (all brokers were restarted)", code)
        brokers = ", ".join(map(str, left))
        return CliError(f"{said} (the roll has stopped; still to be restarted: {brokers})", code)


def _led_as_preferred(view: ClusterView) -> dict[int, list[TopicPartition]]:
    led: dict[int, list[TopicPartition]] = {}
    for topic in view.topics.values():
        for number, partition in topic.partitions.items():
            if partition.leader == partition.replicas[0]:
                place = (topic.name, Partition(number))
                led.setdefault(partition.leader, []).append(place)
    return led


def _elected(client: Client, broker: int, led: Sequence[TopicPartition]) -> int:
    """How many it leads again; what was moved or deleted meanwhile is not its any more."""
    client.run(refresh(client.view, None))
    away = [
        (topic, number)
        for topic, number in led
        if (known := client.view.topics.get(topic)) is not None
        if (partition := known.partitions.get(number)) is not None
        if partition.replicas[0] == broker != partition.leader
    ]
    if not away:
        return 0
    done = client.run(elect_leaders(client.view, away))
    return sum(one.code is ErrorCode.NONE for one in done)
