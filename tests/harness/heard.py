"""Until every living broker knows what the controller has decided so far.

Whoever asks a broker, or has a tool ask any of them, is told what that broker has heard of: the
metadata log, the controller and the broker asked before may know more.
"""

from harness.cluster import Cluster, until
from harness.raw import RawClient
from tidelog.wire.messages import k55_describe_quorum as k55

_LOG = "__cluster_metadata"
_VERSION = 1


def until_all_heard(cluster: Cluster) -> None:
    wanted = -1

    def look() -> bool:
        nonlocal wanted
        quorum = _quorum(cluster)
        if quorum is None:
            return False
        (leader,) = quorum.current_voters
        wanted = leader.log_end_offset if wanted < 0 else wanted
        return all(one.log_end_offset >= wanted for one in quorum.observers)

    until(look, "every broker has heard of all that is decided")


def _quorum(cluster: Cluster) -> k55.PartitionData | None:
    """As the controller tells it, by any broker that answers."""
    asked = k55.TopicRequest(topic_name=_LOG, partitions=[k55.PartitionRequest(partition_index=0)])
    for address in cluster.bootstrap.split(","):
        try:
            with RawClient(address) as raw:
                answer = raw.ask(k55.API, _VERSION, k55.DescribeQuorumRequest(topics=[asked]))
        except (OSError, EOFError):
            continue
        if not answer.error_code:
            found = answer.topics[0].partitions[0]
            assert isinstance(found, k55.PartitionData)
            return found
    return None
