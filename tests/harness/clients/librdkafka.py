"""What every confluent-kafka client is given that lives through faults."""

from typing import Final

LIVING: Final[dict[str, str | int]] = {
    "log_level": 0,
    # librdkafka 2.16.0 may stop for good where it begins anew (docs/clients.md).
    "metadata.recovery.strategy": "none",
}
