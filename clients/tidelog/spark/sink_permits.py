"""The permit of an exactly-once sink: without it a task cannot begin after its driver has given up.

A job fails when one of its tasks does, and another task may begin after that. Such a task takes its
transactional id over after the driver has done so. Spark has cancelled it, which it sees only as
the end of its input, and so it would leave a transaction open that no driver knows of.

Therefore a task needs the permit of its job. The driver reads the permit when Spark plans the job.
When the job has failed, the driver first replaces the permit, and then takes over the transactional
ids of all tasks. A task reads the permit after it has taken over its own id. If the task was faster
than the driver, the driver takes the id from it and aborts what it has written. If the task was
slower, the permit was replaced before, and the task ends before it writes anything.

The permit is the producer epoch of the transactional id `SINK/permit`, under which nothing is ever
written. Epochs only grow: a late copy of an old request cannot bring a replaced permit back.
"""

from typing import Final

from tidelog.clients.admin.transactions import describe_transactions
from tidelog.clients.asking import Plan
from tidelog.clients.cluster_view import ClusterView
from tidelog.clients.producer.identity import init_producer_id
from tidelog.clients.producer.sender import Identity

NEVER_REPLACED: Final = Identity(-1, -1)
"""The permit of a sink none of whose jobs has failed."""


def read_permit(view: ClusterView, name: str) -> Plan[Identity]:
    """The present permit, which has this transactional id."""
    found = (yield from describe_transactions(view, [name]))[name]
    if found is None:
        return NEVER_REPLACED
    return Identity(found.producer_id, found.producer_epoch)


def replace_permit(view: ClusterView, name: str) -> Plan[Identity]:
    """Once this returns, no task that was planned before can begin to write."""
    return (yield from init_producer_id(view, name))
