"""A new topic's settings: checked when they come, listed as they take effect in the answer."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.kernel.config import SettingError
from tidelog.node.settings import SYNONYMS, TOPIC
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k19_create_topics import CreatableTopicConfig, CreatableTopicConfigs

SOURCE_TOPIC: Final = 1
SOURCE_BROKER: Final = 4
SOURCE_DEFAULT: Final = 5


HINT_NAME_CHARS_MAX: Final = 100


def checked_configs(
    given: Sequence[CreatableTopicConfig], *, hinting: bool = True
) -> dict[str, str]:
    """Name to text; INVALID_CONFIG where one is unknown or breaks its rule.

    To find the nearest name takes milliseconds, so who asks for very much gets no hints.
    """
    checked = {}
    for config in given:
        if config.value is None:
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {config.name}",
            )
        near = hinting and len(config.name) <= HINT_NAME_CHARS_MAX
        if config.name not in TOPIC and not near:
            raise Rejected(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {config.name}")
        try:
            TOPIC.check(config.name, config.value)
        except SettingError as error:
            raise Rejected(ErrorCode.INVALID_CONFIG, str(error)) from error
        checked[config.name] = config.value
    return checked


def effective_configs(
    own: Mapping[str, str], broker: Mapping[str, str]
) -> list[CreatableTopicConfigs]:
    """Every setting a topic has, its value, and where it comes from."""
    return [_effective(name, own, broker) for name in sorted(TOPIC.rows)]


def _effective(
    name: str, own: Mapping[str, str], broker: Mapping[str, str]
) -> CreatableTopicConfigs:
    stand_in = SYNONYMS.get(name, "")
    if name in own:
        value, source = own[name], SOURCE_TOPIC
    elif stand_in in broker:
        value, source = broker[stand_in], SOURCE_BROKER
    else:
        value, source = TOPIC.rows[name].default, SOURCE_DEFAULT
    return CreatableTopicConfigs(name=name, value=value, config_source=source)
