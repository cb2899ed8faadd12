"""The main functions of the processes. Importing them is most of what a start costs."""

from collections.abc import Callable

from msgspec import Struct

from tidelog.kernel.launch import BrokerLaunch, CoordinatorLaunch, Launch


class Entries(Struct, frozen=True):
    broker: Callable[[BrokerLaunch], int]
    coordinator: Callable[[CoordinatorLaunch], int]
    transactions: Callable[[Launch], int]


def load() -> Entries:
    """Once, in the supervisor: its children share the memory. Makes no thread or context."""
    import tidelog.coordinator.main  # noqa: PLC0415 -- a refused `up` needs none of it
    import tidelog.coordinator.txn_main  # noqa: PLC0415 -- as above
    import tidelog.node.main  # noqa: PLC0415 -- as above

    return Entries(
        broker=tidelog.node.main.run,
        coordinator=tidelog.coordinator.main.run,
        transactions=tidelog.coordinator.txn_main.run,
    )
