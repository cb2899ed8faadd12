"""The blocking consumer of assigned partitions: no group, positions are the caller's own.

One thread owns it.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.clients.admin.offsets import END, START, list_offsets
from tidelog.clients.asking import Answered, Ticket
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.consumer.fetcher import FetchCall, Fetcher
from tidelog.clients.consumer.reading import Fetched
from tidelog.clients.failures import ClientError
from tidelog.clients.settings import ConsumerSettings
from tidelog.kernel.ids import Offset, TopicPartition
from tidelog.kernel.instant import Instant


class Reset(NamedTuple):
    """A position that the log does not have, and the nearest one that it has. Or a position in a
    log that was cut before it, and where that parts from what was read."""

    partition: TopicPartition
    asked: Offset
    found: Offset


class Consumer:
    """`poll` gives fetched partitions; give each back to `consumed` once its records are read."""

    def __init__(self, client: Client, settings: ConsumerSettings) -> None:
        self._client = client
        self._settings = settings
        self._fetcher = Fetcher(settings)
        self._sent: dict[Ticket, FetchCall] = {}
        self._ready: deque[Fetched] = deque()
        self.resets: list[Reset] = []
        """Positions that had to be changed; the caller clears it."""

    def assign(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Read these partitions from these positions on."""
        self._fetcher.assign(positions)

    def drop(self, partition: TopicPartition) -> None:
        """Do not read it any more."""
        self._fetcher.drop(partition)
        self._ready = deque(one for one in self._ready if one.partition != partition)

    def position(self, partition: TopicPartition) -> Offset:
        return self._fetcher.position(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        """Records left up to the last known end; None before the first answer."""
        return self._fetcher.lag(partition)

    def poll(self, until: Instant) -> Fetched | None:
        """The next partition with data, or None when that time has come."""
        network = self._client.network
        while not self._ready:
            self._work(until)
            if network.now() >= until:
                break
        return self._ready.popleft() if self._ready else None

    def consumed(self, fetched: Fetched) -> None:
        """Its records were read, up to its position; more may be fetched."""
        self._fetcher.consumed(fetched)

    def _work(self, until: Instant) -> None:
        network = self._client.network
        self._reset()
        self._refresh()
        for call in self._fetcher.poll(network.now(), self._client.view):
            ticket = self._client.ask(call.call)
            assert ticket is not None, "the view knows every leader that it names"
            self._sent[ticket] = call
        retry = self._fetcher.deadline()
        for outcome in self._client.poll(until if retry is None else min(retry, until)):
            sent = self._sent.pop(outcome.ticket, None)
            if sent is None:
                continue
            if isinstance(outcome, Answered):
                self._ready += self._fetcher.answered(network.now(), sent, outcome.message)
            else:
                self._fetcher.lost(network.now(), sent, outcome)

    def _reset(self) -> None:
        """Out of range: go on at the nearest offset there is. Cut: at what came instead."""
        for partition, found in sorted(self._fetcher.diverged.items()):
            self.resets.append(Reset(partition, self._fetcher.position(partition), found))
            self._fetcher.seek(partition, found)
        lost = sorted(self._fetcher.out_of_range)
        if not lost:
            return
        view, level = self._client.view, self._settings.isolation
        starts = self._client.run(list_offsets(view, dict.fromkeys(lost, START), level))
        ends = self._client.run(list_offsets(view, dict.fromkeys(lost, END), level))
        for partition in lost:
            asked = self._fetcher.position(partition)
            found = min(max(asked, starts[partition].offset), ends[partition].offset)
            self._fetcher.seek(partition, found)
            if found != asked:
                self.resets.append(Reset(partition, asked, found))

    def _refresh(self) -> None:
        """Ask who leads now; where nobody answers, the partitions' own back-off tries again."""
        if not self._fetcher.stale:
            return
        topics = set(self._fetcher.stale)
        self._fetcher.stale.clear()
        try:
            self._client.run(refresh(self._client.view, topics), self._settings.request_timeout_ns)
        except ClientError:
            self._fetcher.stale |= topics
