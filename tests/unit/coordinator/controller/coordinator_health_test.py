"""How many partitions lack something."""

from harness.machines.controllers import ONE, THREE, TWO, Controlled, topic
from tidelog.coordinator.controller.health import Health, health


def found(controlled: Controlled) -> Health:
    return health(controlled.image, controlled.settings.rules(controlled.image))


def test_each_lack_is_counted_by_itself() -> None:
    controlled = Controlled(ONE, TWO, THREE)
    two: dict[str, str | None] = {"min.insync.replicas": "2"}
    controlled.create(
        topic("all", 3, 3),
        topic("strict", assignments={0: [ONE, TWO], 1: [TWO, THREE]}, configs=two),
        topic("alone", assignments={0: [ONE]}, configs=two),
    )
    assert found(controlled) == Health()
    controlled.lose(ONE)
    assert found(controlled) == Health(offline=1, under_replicated=5, under_min_isr=2)
    controlled.lose(TWO)
    controlled.lose(THREE)
    assert found(controlled) == Health(offline=6, under_replicated=6, under_min_isr=6)
