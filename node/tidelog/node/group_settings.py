"""The broker's settings for consumer groups and what they commit."""

from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.config import Setting, integer
from tidelog.node.setting_rows import INT_MAX, LONG_MAX, whole

POLICIES: Final = ("disabled", "downgrade", "upgrade", "bidirectional")


def _policy(given: str) -> str:
    if given.lower() not in POLICIES:
        raise ValueError(given)
    return given.lower()


GROUP_ROWS: Final[tuple[Setting, ...]] = (
    whole(
        "group.consumer.heartbeat.interval.ms",
        500,
        1,
        INT_MAX,
        "How often members of the consumer protocol say that they are there, and hear of a new "
        "assignment. Kafka's is 5 s.",
    ),
    whole(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        1,
        INT_MAX,
        "The longest heartbeat interval that a group may be given.",
    ),
    whole(
        "group.consumer.max.session.timeout.ms",
        60_000,
        1,
        INT_MAX,
        "The longest session time-out that a group may be given.",
    ),
    whole(
        "group.consumer.max.size",
        limits.GROUP_MEMBERS_MAX,
        1,
        INT_MAX,
        "Members of one group of the consumer protocol; one more is turned away.",
    ),
    Setting(
        "group.consumer.migration.policy",
        _policy,
        "bidirectional",
        f"must be {' or '.join(POLICIES)}, in any case",
        "Whether a group may change its protocol while it has members: upgrade, when the first "
        "member of the consumer protocol joins; downgrade, when the last one is gone.",
        "string",
    ),
    whole(
        "group.consumer.min.heartbeat.interval.ms",
        100,
        1,
        INT_MAX,
        "The shortest heartbeat interval that a group may be given.",
    ),
    whole(
        "group.consumer.min.session.timeout.ms",
        6_000,
        1,
        INT_MAX,
        "The shortest session time-out that a group may be given. Kafka's is 45 s.",
    ),
    whole(
        "group.consumer.session.timeout.ms",
        45_000,
        1,
        INT_MAX,
        "A member of the consumer protocol that is silent for so long has left its group.",
    ),
    whole(
        "group.initial.rebalance.delay.ms",
        20,
        0,
        INT_MAX,
        "How long the first member of an empty group waits for others, so that members that are "
        "started together make one generation. Kafka waits 3 s.",
    ),
    whole(
        "group.max.session.timeout.ms",
        1_800_000,
        1,
        INT_MAX,
        "The longest session time-out that a member may ask for.",
    ),
    whole(
        "group.max.size",
        limits.GROUP_MEMBERS_MAX,
        1,
        INT_MAX,
        "Members of one group; one more is turned away.",
    ),
    whole(
        "group.member.disconnect.ms",
        0,
        0,
        INT_MAX,
        "A member whose connection ended, and that did not come back for so long, has left its "
        "group; 0: only its session time-out tells, as with Kafka. For tests on one machine.",
    ),
    whole(
        "group.min.session.timeout.ms",
        6_000,
        1,
        INT_MAX,
        "The shortest session time-out that a member may ask for.",
    ),
    whole(
        "offset.metadata.max.bytes",
        4_096,
        0,
        INT_MAX,
        "The longest text that a client may keep with an offset.",
    ),
    whole(
        "offsets.commit.timeout.ms",
        5_000,
        1,
        INT_MAX,
        "How long a group's answer waits for the replicas of what it says.",
    ),
    whole(
        "offsets.retention.check.interval.ms",
        600_000,
        1,
        LONG_MAX,
        "How often committed offsets are looked at for what nobody reads any more.",
    ),
    whole(
        "offsets.retention.minutes",
        10_080,
        1,
        INT_MAX,
        "How long offsets are kept once their group is empty.",
    ),
    whole(
        "offsets.topic.num.partitions",
        50,
        1,
        limits.PARTITIONS_PER_TOPIC_MAX,
        "Partitions of __consumer_offsets when it is made; later the topic itself says it.",
    ),
    Setting(
        "offsets.topic.replication.factor",
        integer(1, limits.BROKERS_MAX),
        "3",
        f"must be a whole number from 1 to {limits.BROKERS_MAX}",
        "Replicas of __consumer_offsets. Unless it is set, never more than there are brokers.",
        "short",
    ),
    whole(
        "offsets.topic.segment.bytes",
        100 * limits.MIB,
        1,
        INT_MAX,
        "Segment size of __consumer_offsets: small enough to be compacted soon.",
    ),
)
