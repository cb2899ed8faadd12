"""What a call was answered, as a header of the first record of the batch that decided it."""

from struct import Struct
from typing import Final

from tidelog.coordinator.controller.settled import Caller, Settled
from tidelog.coordinator.runtime.flushed import Headers
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.records import iterate_records

HEADER_NAME: Final = "settled"
_CALLER: Final = Struct(">iqq")


def settled_header(settled: Settled | None) -> Headers:
    if settled is None:
        return ()
    caller = settled.caller
    head = _CALLER.pack(caller.broker, caller.incarnation, caller.call)
    return ((HEADER_NAME, head + settled.answer),)


def settled_by(batch: memoryview) -> Settled | None:
    """What a whole batch says; None where no client waited for it."""
    try:
        first = next(iterate_records(batch), None)
    except (WireError, Rejected):
        return None
    for name, value in first.headers if first else ():
        if name == HEADER_NAME and value is not None and len(value) >= _CALLER.size:
            broker, incarnation, call = _CALLER.unpack_from(value)
            caller = Caller(BrokerId(broker), Incarnation(incarnation), call)
            return Settled(caller, value[_CALLER.size :])
    return None
