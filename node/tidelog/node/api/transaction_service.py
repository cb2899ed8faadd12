"""A broker's service for the transaction coordinator, put together out of the broker's parts."""

from collections.abc import Callable

from tidelog.kernel.instant import Instant
from tidelog.node.api.broker import Broker
from tidelog.node.transactions import state_log
from tidelog.node.transactions.admissions import Admissions
from tidelog.node.transactions.link import Me
from tidelog.node.transactions.service import Service, Surroundings
from tidelog.node.transactions.state_log import StateLog
from tidelog.wire.transactions import ToTransactions


def make_service(
    me: Me,
    broker: Broker,
    *,
    is_lost: Callable[[], bool],
    send: Callable[[ToTransactions], None],
    alarm: Callable[[Instant], None],
) -> Service:
    """What the shell gives is its socket and its timer."""
    around = state_log.Surroundings(
        replicas=broker.replicas,
        replication=broker.replication,
        waiting=broker.waiting,
        wall_ms=broker.wall_ms,
        on_storage_failure=broker.on_storage_failure,
    )
    return Service(
        me,
        Surroundings(
            image=broker.image,
            state_log=StateLog(around),
            marks=broker.marks,
            admissions=Admissions(broker.replicas, broker.on_storage_failure),
            is_lost=is_lost,
            send=send,
            alarm=alarm,
        ),
    )
