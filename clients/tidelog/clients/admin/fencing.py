"""Take transactional ids from whoever has them: what they left open is aborted."""

from collections.abc import Iterable

from tidelog.clients.admin.transactions import describe_transactions
from tidelog.clients.asking import Plan
from tidelog.clients.cluster_view import ClusterView
from tidelog.clients.producer.identity import TRANSACTION_TIMEOUT_MS, init_producer_id
from tidelog.clients.producer.sender import Identity


def fence_producers(
    view: ClusterView, transactional_ids: Iterable[str]
) -> Plan[dict[str, Identity]]:
    """Once this returns nothing that older producers of these ids wrote is open, and nothing more
    that they write is taken. By id, what its coordinator gave instead.

    An id keeps its time-out; one that is not known yet is made.
    """
    wanted = list(dict.fromkeys(transactional_ids))
    known = yield from describe_transactions(view, wanted)
    identities = {}
    for name in wanted:
        before = known[name]
        timeout_ms = TRANSACTION_TIMEOUT_MS if before is None else before.timeout_ms
        identities[name] = yield from init_producer_id(view, name, timeout_ms=timeout_ms)
    return identities
