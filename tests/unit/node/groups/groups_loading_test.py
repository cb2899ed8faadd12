"""While a coordinator loads its groups, a member's heartbeat is fine and all else has to wait."""

from harness.simulation.clients import Asked
from harness.simulation.cluster import A, B, C, SimulatedCluster
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k12_heartbeat, k13_leave_group


def test_a_heartbeat_is_taken_while_the_group_is_loaded() -> None:
    cluster = SimulatedCluster()
    life = cluster.lives[A]
    life.broker.groups.alarm = lambda _deadline: None  # so that the loading does not go on
    cluster.create(OFFSETS_TOPIC, A, B, C, partitions=1)
    cluster.until(lambda: cluster.leads(A, OFFSETS_TOPIC))
    beat = k12_heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    leave = k13_leave_group.LeaveGroupRequest(
        group_id="g", members=[k13_leave_group.MemberIdentity(member_id="m")]
    )
    left = Asked(life, k13_leave_group.API, 5, leave, lambda: None)
    beaten = Asked(life, k12_heartbeat.API, 4, beat, lambda: None)
    assert left.answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert beaten.answer.error_code == ErrorCode.NONE
