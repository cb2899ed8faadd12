"""What settings belong to, in requests about settings."""

from enum import IntEnum

from tidelog.kernel.ids import BrokerId
from tidelog.kernel.texts import quoted
from tidelog.wire.errors import ErrorCode, Rejected


class Resource(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_own_broker(me: BrokerId, name: str, *, choice: str = "") -> None:
    """INVALID_REQUEST where a broker is asked for another one's settings; `choice` is what else it
    may be asked for."""
    if not name.removeprefix("-").isdecimal() or not name.isascii():
        raise Rejected(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {quoted(name)}"
        )
    if name != str(me):
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {me}{choice}, but received {quoted(name)}",
        )
