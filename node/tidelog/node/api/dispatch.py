"""From a frame to its handler: the one place where a request's key and version are judged."""

from functools import partial
from typing import Any, Final

from tidelog.kernel.instant import Instant
from tidelog.kernel.steps import Steps
from tidelog.node.api import (
    forwarded,
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k18_api_versions,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k34_alter_replica_log_dirs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k47_offset_delete,
    k55_describe_quorum,
    k57_update_features,
    k60_describe_cluster,
    k61_describe_producers,
    k64_unregister_broker,
    k65_describe_transactions,
    k66_list_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
from tidelog.node.api.broker import Broker
from tidelog.node.api.call import Call
from tidelog.node.api.faults import Fault, faults_caught
from tidelog.node.api.produce_again import ProduceAgain
from tidelog.node.api.registry import Registry, Route, settle
from tidelog.node.api.trailing import TellOfTrailing, TrailingBytes
from tidelog.node.net.client import Client, CloseConnectionError, RequestFailedError
from tidelog.node.net.session import OVERLAPPING
from tidelog.wire.errors import REQUEST_FAULTS, TooWideError, WireError, fault_text
from tidelog.wire.frame import encode_response, read_in_steps, read_request_at_once
from tidelog.wire.header import (
    API_VERSIONS_KEY,
    HEAD_BYTES,
    AnyApi,
    RequestHeader,
    decode_request_header,
)
from tidelog.wire.memory import memory_of
from tidelog.wire.messages.k18_api_versions import API as API_VERSIONS

assert k00_produce.ROUTE.key == 0, "as `begin` takes for granted"


_ROUTES: Final = (
    k00_produce.ROUTE,
    k01_fetch.ROUTE,
    k02_list_offsets.ROUTE,
    k03_metadata.ROUTE,
    k08_offset_commit.ROUTE,
    k09_offset_fetch.ROUTE,
    k10_find_coordinator.ROUTE,
    k11_join_group.ROUTE,
    k12_heartbeat.ROUTE,
    k13_leave_group.ROUTE,
    k14_sync_group.ROUTE,
    k15_describe_groups.ROUTE,
    k16_list_groups.ROUTE,
    forwarded.CREATE_TOPICS,
    forwarded.DELETE_TOPICS,
    k21_delete_records.ROUTE,
    k22_init_producer_id.ROUTE,
    k23_offset_for_leader_epoch.ROUTE,
    k29_describe_acls.ROUTE,
    k30_create_acls.ROUTE,
    k31_delete_acls.ROUTE,
    k32_describe_configs.ROUTE,
    k33_alter_configs.ROUTE,
    k34_alter_replica_log_dirs.ROUTE,
    k35_describe_log_dirs.ROUTE,
    k37_create_partitions.ROUTE,
    k42_delete_groups.ROUTE,
    k43_elect_leaders.ROUTE,
    k44_incremental_alter_configs.ROUTE,
    k45_alter_partition_reassignments.ROUTE,
    k46_list_partition_reassignments.ROUTE,
    k55_describe_quorum.ROUTE,
    k57_update_features.ROUTE,
    k47_offset_delete.ROUTE,
    k60_describe_cluster.ROUTE,
    k61_describe_producers.ROUTE,
    k64_unregister_broker.ROUTE,
    k68_consumer_group_heartbeat.ROUTE,
    k69_consumer_group_describe.ROUTE,
    k74_list_config_resources.ROUTE,
    k75_describe_topic_partitions.ROUTE,
)
_OF_TRANSACTIONS: Final = (
    k24_add_partitions_to_txn.ROUTE,
    k25_add_offsets_to_txn.ROUTE,
    k26_end_txn.ROUTE,
    k27_write_txn_markers.ROUTE,
    k28_txn_offset_commit.ROUTE,
    k65_describe_transactions.ROUTE,
    k66_list_transactions.ROUTE,
)


def routes() -> Registry:
    """Every API a broker serves."""
    itself: list[Registry] = []
    registry = Registry([*_ROUTES, *_OF_TRANSACTIONS, k18_api_versions.route(itself)])
    itself.append(registry)
    return registry


class Dispatcher:
    """Begins requests: decodes them, calls their handler, keeps the place of their answer."""

    def __init__(
        self,
        broker: Broker,
        registry: Registry,
        tell_of_trailing: TellOfTrailing = lambda _told: None,
    ) -> None:
        self._broker = broker
        self._trailing = TrailingBytes(tell_of_trailing)
        self._routes = registry.routes
        self._again = ProduceAgain(broker)
        self._known = {key: route.api for key, route in registry.routes.items()}

    def begin(self, client: Client, frame: memoryview, now: Instant) -> None:
        """Raises CloseConnectionError or WireError where the protocol has no answer, and
        RequestFailedError where a fault of ours came to light: all of them end the connection."""
        try:
            self._begin(client, frame, now)
        except WireError:
            raise
        except REQUEST_FAULTS as fault:
            asked = f"request key {frame[0] << 8 | frame[1]} version {frame[2] << 8 | frame[3]}"
            reason = f"{asked} failed: {fault_text(fault)}"
            self._broker.on_fault(reason)
            raise RequestFailedError(reason) from fault

    def _begin(self, client: Client, frame: memoryview, now: Instant) -> None:
        is_produce = len(frame) >= HEAD_BYTES and not frame[0] and not frame[1]
        if is_produce and self._again.begin(client, frame, now):
            return
        header = decode_request_header(frame, self._known)
        route = self._routes.get(header.api_key)
        if route is None or header.version not in route.versions:
            self._refuse_version(client, header)
            return
        key = header.api_key
        slot = client.session.begin(barrier=key not in OVERLAPPING, key=key)
        api = route.api
        call = Call(self._broker, client, slot, api, header, frame, now)
        message: Any
        try:
            message, left = read_request_at_once(api, header.version, frame, header.body_position)
        except TooWideError:
            self._read_aside(call, route)
            return
        if left:
            self._trailing.note(header, api, left, client.address)
        if is_produce:
            self._again.learn(header, message, frame)
        settle(call, route.handle(call, message))

    def _read_aside(self, call: Call, route: Route) -> None:
        """Decode a request of many elements in a thread. Nothing behind it begins before that."""
        header = call.header
        call.hold()
        call.own_frame()
        work = _read_and_counted(call.api, header, call.frame)
        call.broker.aside(faults_caught(work), call.later(partial(self._handle_read, call, route)))

    def _handle_read(self, call: Call, route: Route, now: Instant, read: Any) -> None:  # noqa: ANN401 -- message, bytes left, memory; or a Fault
        is_produce = route.key == k00_produce.ROUTE.key
        if call.abandoned and not is_produce:
            call.done()
            return
        if isinstance(read, Fault):
            call.done()
            if not isinstance(read.error, WireError):
                raise read.error
            call.client.close(str(read.error))
            return
        message, left, size = read
        call.count_again(size)
        if left:
            self._trailing.note(call.header, call.api, left, call.client.address)
        call.now = now
        if not is_produce:  # whose records are appended even if the client is gone
            call.end_with_client()
        call.slot.barrier = route.key not in OVERLAPPING
        try:
            settle(call, route.handle(call, message))
        except CloseConnectionError as error:
            call.done()
            call.client.close(str(error))
        else:
            call.client.answered()

    def _refuse_version(self, client: Client, header: RequestHeader) -> None:
        """ApiVersions alone can say which version it speaks; for all else the connection ends."""
        if header.api_key != API_VERSIONS_KEY:
            raise CloseConnectionError(
                f"request key {header.api_key} version {header.version} is not served"
            )
        slot = client.session.begin(barrier=True)
        slot.pieces = encode_response(
            API_VERSIONS, 0, header.correlation_id, k18_api_versions.unsupported_version()
        )


def _read_and_counted(
    api: AnyApi, header: RequestHeader, frame: memoryview
) -> Steps[tuple[object, int, int]]:
    """The message, the number of bytes behind it, and how much memory it takes."""
    message, left = yield from read_in_steps(api, header.version, frame, header.body_position)
    size = yield from memory_of(message)
    return message, left, size
