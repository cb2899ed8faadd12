"""Wide requests that the controller decides on: in pieces, one after the other.

The controller has one loop, and decides on each message in one step of it. So the broker that was
asked cuts a request of many items into pieces that take the controller a few milliseconds each,
sends the next piece once the last one is answered, and makes one answer of all of them. Each piece
is a call of its own: if the controller changes in between, it is sent again and decided once.

When a piece gets no answer, the pieces behind it are not sent, and have the same error. A client
that leaves stops nothing: how much of its request is done is not left to chance.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from tidelog.kernel import limits
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api.call import Call
from tidelog.node.api.parts import ANYWAY, Asking, Parting, Turn
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_request, joined

ItemT = TypeVar("ItemT")
Rows = dict[Hashable, Any]
"""By item, what became of it: a row of the answer."""

_TIMEOUT_MS_MIN: Final = 1_000
"""A client that asks for less would time out on its own before it could learn anything."""


class Kind(Struct, Generic[ItemT], frozen=True):
    """What one API does with its items."""

    key: Callable[[ItemT], Hashable]
    """Two items with the same key are duplicates."""
    weight: Callable[[ItemT], int]
    """What it costs the controller, in units of about five microseconds."""
    request: Callable[[list[ItemT]], Any]
    rows: Callable[[Any], Sequence[Any]]
    """The rows of an answer."""
    refusal: Callable[[ItemT, ErrorCode], Any]
    """The row of an item on which nothing was decided, as far as is known."""
    together: Callable[[ItemT], Hashable] | None = None
    """Items that must be decided in one piece; the key where this is not given."""
    code: Callable[[Any], int] = lambda _: ErrorCode.NONE
    """The code of a whole answer, which has no rows then."""
    row_for_each: bool = False
    """Whether the controller answers each duplicate, not only the first one."""


class Outcome(Struct, frozen=True):
    """What became of the items, in the order in which their keys came first."""

    rows: Rows
    refused: ErrorCode
    """Why nothing was decided on any of them; NONE where something was."""


def deadline_of(call: Call, timeout_ms: int) -> Instant:
    """Until when the client is kept waiting for the controller."""
    wait_ms = min(max(timeout_ms, _TIMEOUT_MS_MIN), limits.FORWARD_TIMEOUT_MS)
    return Instant(call.now + ms(wait_ms))


def is_wide(weights: Iterable[int]) -> bool:
    """Whether items of these weights are too much for one step of the controller."""
    total = 0
    for weight in weights:
        total += weight
        if total > limits.FORWARDED_WEIGHT_MAX:
            return True
    return False


def frame_of(call: Call, message: object) -> bytes:
    """Another request in the place of the client's own, without its size."""
    header = call.header
    encoded = encode_request(
        call.api, header.version, header.correlation_id, header.client_id, message
    )
    return joined(encoded)[4:]


def text_weight(text: str | None) -> int:
    """What a long text adds."""
    return 0 if text is None else len(text) // 256


def decided_in_pieces(
    call: Call, timeout_ms: int, items: Iterable[ItemT], kind: Kind[ItemT]
) -> Parting[Outcome]:
    """Have the controller decide on each of the items, some of them at a time.

    The client's time-out is for each piece: a short one must not leave a part of the items undone.
    """
    call.outlive_client()
    last = deadline_of(call, limits.FORWARD_TIMEOUT_MS)
    turn, failed = Turn(), ErrorCode.NONE
    rows: Rows = {}
    is_any_decided = False
    families = yield from _families(items, kind, rows, turn)
    for piece in _pieces(families.values(), kind):
        if failed is ErrorCode.NONE:
            deadline = min(deadline_of(call, timeout_ms), last)
            said = yield _asking(call, kind.request(piece), deadline)
            failed = _taken(call, kind, piece, said, rows)
            is_any_decided |= failed is ErrorCode.NONE
        if failed is not ErrorCode.NONE:
            code = _after_others(failed) if is_any_decided else failed
            yield from _refused(piece, kind, code, rows, turn)
    return Outcome(rows, ErrorCode.NONE if is_any_decided else failed)


def _taken(
    call: Call, kind: Kind[ItemT], piece: list[ItemT], said: bytes | ErrorCode, rows: Rows
) -> ErrorCode:
    """Take the rows of one piece's answer; NONE, or why it has none."""
    if isinstance(said, ErrorCode):
        return said
    _, message = decode_response(call.api, call.version, memoryview(said))
    code = ErrorCode(kind.code(message))
    if code is ErrorCode.NONE:
        rows.update(zip(_answered(piece, kind), kind.rows(message), strict=True))
    return code


def _refused(
    piece: list[ItemT], kind: Kind[ItemT], code: ErrorCode, rows: Rows, turn: Turn
) -> Parting[None]:
    if turn.is_over(len(piece)):
        yield ANYWAY
    rows.update((kind.key(item), kind.refusal(item, code)) for item in piece)


def _families(
    items: Iterable[ItemT], kind: Kind[ItemT], rows: Rows, turn: Turn
) -> Parting[dict[Hashable, dict[Hashable, list[ItemT]]]]:
    """Items by what keeps them together, and by key; `rows` gets the keys in their order. Of
    duplicates the first two are enough: the controller refuses all as soon as there are two."""
    families: dict[Hashable, dict[Hashable, list[ItemT]]] = {}
    for item in items:
        if turn.is_over():
            yield ANYWAY
        key = kind.key(item)
        rows[key] = None
        family = families.setdefault(kind.together(item) if kind.together else key, {})
        same = family.setdefault(key, [])
        if len(same) < 2:
            same.append(item)
    return families


def _pieces(
    families: Iterable[dict[Hashable, list[ItemT]]], kind: Kind[ItemT]
) -> Iterator[list[ItemT]]:
    """Duplicates are never parted. A family is parted only if it is too large for a piece."""
    most = limits.FORWARDED_WEIGHT_MAX
    piece: list[ItemT] = []
    weight = 0
    for same, bound in _bounded(families, most):
        more = sum(kind.weight(item) for item in same)
        if piece and weight + more > bound:
            yield piece
            piece, weight = [], 0
        piece += same
        weight += more
    if piece:
        yield piece


def _bounded(
    families: Iterable[dict[Hashable, list[ItemT]]], most: int
) -> Iterator[tuple[list[ItemT], int]]:
    """Duplicates, and how heavy a piece may become with them: more in the middle of a family."""
    for family in families:
        bound = most
        for same in family.values():
            yield same, bound
            bound = 2 * most


def _answered(piece: list[ItemT], kind: Kind[ItemT]) -> Iterable[Hashable]:
    keys = [kind.key(item) for item in piece]
    return keys if kind.row_for_each else dict.fromkeys(keys)


def _asking(call: Call, message: object, deadline: Instant) -> Asking:
    """Have the controller answer a piece: its answer's frame, or why there is none."""
    frame = frame_of(call, message)

    def begin(done: Callable[[bytes | ErrorCode], None]) -> None:
        call.broker.link.forward(
            call.api.key, frame, call.client.address, deadline, call.later(done)
        )

    return Asking(begin)


def _after_others(code: ErrorCode) -> ErrorCode:
    """A client repeats all of a request that met no controller. It must not where some is done."""
    return ErrorCode.REQUEST_TIMED_OUT if code is ErrorCode.NOT_CONTROLLER else code
