"""One broker's own settings: as it was started, and as they were changed since."""

from collections.abc import Mapping
from typing import Any

from tidelog.kernel.ids import BrokerId
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.origins import Layers
from tidelog.node.settings import BROKER

EVERY_BROKER = ""
"""The resource whose settings are all brokers' at once."""


class BrokerSettings:
    """What holds for a broker now.

    Invariant: `given` and `values` are the same objects for life, so that whoever holds one sees
    every change: `given` has the texts, `values` each row of the table, read.
    """

    def __init__(self, me: BrokerId, static: Mapping[str, str]) -> None:
        self._me = str(me)
        self.layers = Layers(static)
        self.given: dict[str, str] = dict(static)
        self.values: dict[str, Any] = {
            name: row.read(self.given.get(name, row.default)) for name, row in BROKER.rows.items()
        }

    def follow(self, image: MetadataImage) -> frozenset[str]:
        """Take what the cluster's metadata says; the names of what has another value now."""
        configs = image.broker_configs
        cluster, own = configs.get(EVERY_BROKER, {}), configs.get(self._me, {})
        self.layers = Layers(self.layers.static, dict(cluster), dict(own))
        given = self.layers.effective()
        names = {*given, *self.given}
        changed = {name for name in names if given.get(name) != self.given.get(name)}
        for name in changed & BROKER.rows.keys():
            self.values[name] = BROKER.read(given, name)
        self.given.clear()
        self.given.update(given)
        return frozenset(changed)
