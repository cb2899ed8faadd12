"""The broker's settings for transactions; what the coordinator needs of them, it is given."""

from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.config import Setting, boolean, integer
from tidelog.node.setting_rows import INT_MAX, whole

TRANSACTION_ROWS: Final[tuple[Setting, ...]] = (
    whole(
        "transaction.max.timeout.ms",
        900_000,
        1,
        INT_MAX,
        "The longest time that a producer may ask for its transactions.",
    ),
    Setting(
        "transaction.partition.verification.enable",
        boolean,
        "true",
        "must be true or false",
        "Whether the coordinator is asked before the first records of a transaction are taken into "
        "a partition. Without, records that come too late hide what is committed behind them. For "
        "producers that speak version 2 of transactions it is asked in any case.",
        "boolean",
    ),
    whole(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        1,
        INT_MAX,
        "How often transactional ids are looked at for what nobody uses any more.",
    ),
    whole(
        "transaction.state.log.min.isr",
        2,
        1,
        INT_MAX,
        "How many replicas of __transaction_state must be in sync for anything to be decided. "
        "Unless it is set, one less than there are replicas.",
    ),
    whole(
        "transaction.state.log.num.partitions",
        50,
        1,
        limits.PARTITIONS_PER_TOPIC_MAX,
        "Partitions of __transaction_state when it is made; later the topic itself says it.",
    ),
    Setting(
        "transaction.state.log.replication.factor",
        integer(1, limits.BROKERS_MAX),
        "3",
        f"must be a whole number from 1 to {limits.BROKERS_MAX}",
        "Replicas of __transaction_state. Unless it is set, never more than there are brokers.",
        "short",
    ),
    whole(
        "transaction.state.log.segment.bytes",
        100 * limits.MIB,
        1,
        INT_MAX,
        "Segment size of __transaction_state: small enough to be compacted soon.",
    ),
    whole(
        "transactional.id.expiration.ms",
        604_800_000,
        1,
        INT_MAX,
        "A transactional id that was not used for so long is forgotten.",
    ),
)
