"""A topic's settings: checked when they come, listed as they take effect in an answer."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.kernel.config import SettingError, canonical
from tidelog.kernel.texts import quoted
from tidelog.node.changing import flush_conflict, topic_conflict
from tidelog.node.origins import TopicSettings
from tidelog.node.settings import TOPIC, topic_reader
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k19_create_topics import CreatableTopicConfig, CreatableTopicConfigs

HINT_NAME_CHARS_MAX: Final = 100


def checked_configs(
    given: Sequence[CreatableTopicConfig], broker: Mapping[str, str], *, hinting: bool = True
) -> dict[str, str]:
    """Name to text; INVALID_CONFIG where one is unknown, breaks its rule, or contradicts another.

    To find the nearest name takes milliseconds, so who asks for very much gets no hints.
    """
    checked = {}
    for config in given:
        if config.value is None:
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {quoted(config.name)}",
            )
        checked[config.name] = check_one(config.name, config.value, hinting=hinting)
    check_together(checked, broker)
    return checked


def check_one(name: str, value: str, *, hinting: bool = True) -> str:
    """The text that is kept; INVALID_CONFIG where no topic has such a setting, or it may not have
    this value."""
    near = hinting and len(name) <= HINT_NAME_CHARS_MAX
    if name not in TOPIC and not near:
        raise Rejected(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {quoted(name)}")
    try:
        TOPIC.check(name, value)
    except SettingError as error:
        raise Rejected(ErrorCode.INVALID_CONFIG, str(error)) from error
    return canonical(TOPIC.row(name), value)


def check_together(own: Mapping[str, str], broker: Mapping[str, str]) -> None:
    """INVALID_CONFIG where a topic's settings, with the broker's behind them, contradict."""
    if not own:
        return
    value = topic_reader(own, broker)
    conflict = topic_conflict(value) or flush_conflict(own, value)
    if conflict is not None:
        raise Rejected(ErrorCode.INVALID_CONFIG, conflict)


def effective_configs(
    own: Mapping[str, str], settings: TopicSettings
) -> list[CreatableTopicConfigs]:
    """Every setting a topic has, its value, and where it comes from."""
    rows = []
    for name in sorted(TOPIC.rows):
        found = settings.explain(name, own)
        rows.append(CreatableTopicConfigs(name=name, value=found.value, config_source=found.source))
    return rows
