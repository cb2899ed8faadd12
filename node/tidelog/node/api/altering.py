"""What AlterConfigs and IncrementalAlterConfigs have in common: the coordinator decides on what
the broker that was asked does not settle itself.

Settings of a broker are changed by asking that very broker, so a request's resources may part ways
here: what is settled stays, the rest goes to the coordinator, and the answers meet again.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from tidelog.kernel.limits import FORWARD_TIMEOUT_MS
from tidelog.kernel.texts import quoted
from tidelog.node.api import pieces
from tidelog.node.api.call import Call
from tidelog.node.api.forwarded import forward
from tidelog.node.api.parts import Parting, Parts, Turn, in_parts
from tidelog.node.api.resources import Resource, check_own_broker
from tidelog.node.broker_settings import EVERY_BROKER
from tidelog.node.changing import too_many_changes
from tidelog.wire.errors import ErrorCode, Rejected

_FORWARDED: Final = frozenset(
    {Resource.TOPIC, Resource.BROKER, Resource.CLIENT_METRICS, Resource.GROUP}
)


class AnyResource(Protocol):
    """A resource of either request."""

    resource_type: int
    resource_name: str
    configs: list[Any]


class MakeRow(Protocol):
    """The class of a row of either response."""

    def __call__(
        self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str
    ) -> Any: ...  # noqa: ANN401 -- each API has its own class


class Altering:
    """One request that changes settings; both APIs' classes have the same fields."""

    def __init__(self, call: Call, request: Any, row: MakeRow, *, loggers: bool) -> None:  # noqa: ANN401 -- as above
        self._call = call
        self._request = request
        self._row = row
        self._loggers = loggers
        """Whether this API takes log levels at all."""

    def answer(self) -> object | None:
        """The answer, or None: it comes when the coordinator has decided."""
        return in_parts(self._call, self._parts())

    def _parts(self) -> Parts:
        resources, turn = self._request.resources, Turn()
        settled: dict[int, Any] = {}
        left: list[AnyResource] = []
        for place, resource in enumerate(resources):
            if turn.is_over():
                yield None
            answer = self._settled(resource)
            if answer is None:
                left.append(resource)
            else:
                settled[place] = answer
        if resources and not left:
            return self._response(settled, [])
        if pieces.is_wide(map(_weight, left)):
            rows = yield from self._in_pieces(left)
            return self._response(settled, rows)
        self._forward(settled, left)
        return None

    def _in_pieces(self, left: list[AnyResource]) -> Parting[list[Any]]:
        """The rows of all resources, the same one for those that are named more than once."""
        changes = sum(len(resource.configs) for resource in left)
        too_many = too_many_changes(changes, len(left))
        if too_many is not None:
            return [self._made(one, ErrorCode.INVALID_REQUEST, too_many) for one in left]
        kind = pieces.Kind[AnyResource](
            key=_key,
            weight=_weight,
            request=self._message,
            rows=lambda told: told.responses,
            refusal=lambda one, code: self._made(one, code, None),
            row_for_each=True,
        )
        done = yield from pieces.decided_in_pieces(self._call, FORWARD_TIMEOUT_MS, left, kind)
        return [done.rows[_key(one)] for one in left]

    def _forward(self, settled: Mapping[int, Any], left: list[AnyResource]) -> None:
        # The client's own frame may be gone, if there were turns of others in between.
        frame = pieces.frame_of(self._call, self._message(left))
        if not settled:
            forward(self._call, FORWARD_TIMEOUT_MS, self._refusal, frame=frame)
            return
        forward(
            self._call,
            FORWARD_TIMEOUT_MS,
            self._refusal,
            frame=frame,
            merge=lambda message: self._response(settled, message.responses),
        )

    def _settled(self, resource: AnyResource) -> Any:  # noqa: ANN401 -- as above
        """The row of what needs no decision; None for the others."""
        try:
            if self._is_for_coordinator(resource):
                return None
        except Rejected as refused:
            return self._made(resource, refused.code, refused.detail)
        return self._made(resource, ErrorCode.NONE, None)

    def _is_for_coordinator(self, resource: AnyResource) -> bool:
        kind, name = resource.resource_type, resource.resource_name
        me = self._call.broker.me
        if kind == Resource.BROKER_LOGGER and self._loggers:
            check_own_broker(me, name)
            for config in resource.configs:
                raise Rejected(
                    ErrorCode.INVALID_CONFIG, f"Logger {quoted(config.name)} does not exist!"
                )
            return False
        if kind not in _FORWARDED:
            raise Rejected(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
        if kind == Resource.BROKER and name != EVERY_BROKER:
            check_own_broker(me, name)
        return True

    def _message(self, resources: list[AnyResource]) -> Any:  # noqa: ANN401 -- as above
        """The request, for some of its resources."""
        request = self._request
        return type(request)(resources=resources, validate_only=request.validate_only)

    def _response(self, settled: Mapping[int, Any], decided: list[Any]) -> object:
        """Rows in the order of the request."""
        others = iter(decided)
        rows = [
            settled[place] if place in settled else next(others)
            for place in range(len(settled) + len(decided))
        ]
        return self._call.api.response(responses=rows)

    def _refusal(self, code: ErrorCode) -> Any:  # noqa: ANN401 -- as above
        rows = [self._made(resource, code, None) for resource in self._request.resources]
        return self._call.api.response(responses=rows)

    def _made(self, resource: AnyResource, code: ErrorCode, reason: str | None) -> Any:  # noqa: ANN401 -- as above
        return self._row(
            error_code=code,
            error_message=reason,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )


def _key(resource: AnyResource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _weight(resource: AnyResource) -> int:
    return 3 + sum(1 + pieces.text_weight(config.value) for config in resource.configs)
