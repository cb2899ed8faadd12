"""kafka-python leaves the socket of a connection that it closes under way to the collector.

That warns, and the warning would fail whichever test happens to run.
"""

import socket
import sys


class Dropped(socket.socket):
    """Closed without a word where it is collected, as every other socket is with a warning."""

    def __del__(self) -> None:
        self.close()


def forgive_kafka_python() -> None:
    """For what this process has loaded of it by now; the sockets of all others still warn."""
    net = sys.modules.get("kafka.net.inet")
    if net is not None:
        net.KafkaNetSocket.socket = lambda _self, *kind: Dropped(*kind)
