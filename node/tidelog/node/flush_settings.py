"""When a topic is forced to disk on brokers with these settings. Pure."""

from collections.abc import Mapping
from typing import Final

from tidelog.node.log.flush_policy import FlushRules, flush_rules
from tidelog.node.settings import BROKER, topic_reader

_POLICY: Final = "flush.policy"


def rules_for(topic: Mapping[str, str], broker: Mapping[str, str]) -> FlushRules:
    """Both as they were given; the tables say the rest."""
    value = topic_reader(topic, broker)
    policy = value(_POLICY) if _POLICY in topic or _POLICY in broker else None
    size = int(BROKER.read(broker, "flush.bytes"))
    return flush_rules(policy, value("flush.messages"), value("flush.ms"), size)
