"""The source of a writer: one function for a whole message, its structs and arrays inlined.

Fields of fixed size are collected and written by one `Struct`, with the length that follows them
where that is a single byte. The names in a writer: `out` the bytes so far, `pieces` what is
finished before them, `v` the newest value, `n` its length on the wire; o, and hold for the bytes
around a tagged value, carry their depth. Where the elements are bounded, `left` is how many more
may come.
"""

from struct import Struct

from tidelog.kernel.limits import STRING_BYTES_MAX
from tidelog.wire import primitives
from tidelog.wire.primitives import ARRAY_SMALL, Primitive
from tidelog.wire.schema import Array, Row, WireType, rows_of
from tidelog.wire.source import Source, struct_name, struct_of

_NAMES = {
    "too_long": primitives.too_long,
    "too_wide": primitives.too_wide,
    "uvarint_bytes": primitives.uvarint_bytes,
    "Struct": Struct,
}


def write_source(
    cls: type, version: int, *, flexible: bool, elements_max: int | None = None
) -> Source:
    """`made(message, out, pieces) -> out`; TooWideError where it has more elements than those.

    Numbers in arrays of them do not count: they are written by one call.
    """
    source = Source("def made(o0, out, pieces):", _NAMES)
    is_bounded = elements_max is not None
    if is_bounded:
        source.emit(f"left = {elements_max}")
    maker = _WriteSource(source, version, flexible=flexible, is_bounded=is_bounded)
    maker.struct(cls, "o0", 0)
    maker.flush()
    source.emit("return out")
    return source


class _WriteSource:
    def __init__(self, source: Source, version: int, *, flexible: bool, is_bounded: bool) -> None:
        self._source = source
        self._version = version
        self._flexible = flexible
        self._is_bounded = is_bounded
        self._values: list[str] = []
        self._format = ">"

    def struct(self, cls: type, target: str, depth: int) -> None:
        """Write the struct that `target` names; the caller flushes."""
        tagged = []
        for row in rows_of(cls):
            if self._version not in row.versions:
                continue
            if row.is_tagged(self._version):
                tagged.append(row)
                continue
            place = f"{target}.{row.name}"
            self._field(row.type, place, depth, nullable=row.is_nullable(self._version))
        if not self._flexible:
            return
        if tagged:
            self._tags(tagged, target, depth)
        else:
            self._format += "x"

    def flush(self) -> None:
        """Write the collected run of fixed-size fields."""
        if self._format != ">":
            self._source.emit(f"out += {self._packed()}")
        self._values, self._format = [], ">"

    def _packed(self, *, extra: str = "") -> str:
        """The run as an expression, with one byte `extra` behind it."""
        code = self._format + ("B" if extra else "")
        values = [*self._values, extra] if extra else self._values
        if not values:
            return repr(struct_of(code).pack())
        name = self._source.constant(struct_name(code), struct_of(code).pack)
        return f"{name}({', '.join(values)})"

    def _fixed(self, value: str, code: str) -> None:
        self._values.append(value)
        self._format += code

    def _field(self, kind: WireType, place: str, depth: int, *, nullable: bool) -> None:
        if isinstance(kind, Array):
            self._array(kind, place, depth, nullable=nullable)
        elif not isinstance(kind, Primitive):
            self._nested(kind, place, depth, nullable=nullable)
        elif kind.size:
            self._fixed(place, kind.code)
        else:
            self._sized(kind, place, nullable=nullable)

    def _nested(self, cls: type, place: str, depth: int, *, nullable: bool) -> None:
        target = f"o{depth + 1}"
        if not nullable:
            # Flush first: the run may name an outer struct of the same depth.
            self.flush()
            self._source.emit(f"{target} = {place}")
            self.struct(cls, target, depth + 1)
            self.flush()
            return
        self.flush()
        self._source.emit(f"{target} = {place}")
        with self._source.block(f"if {target} is None:"):
            self._source.emit("out += b'\\xff'")
        with self._source.block("else:"):
            self._source.emit("out += b'\\x01'")
            self.struct(cls, target, depth + 1)
            self.flush()

    def _length(self, code: str) -> None:
        """Write the wire's length `n` behind the run."""
        if not self._flexible:
            self._fixed("n", code)
            self.flush()
            return
        source = self._source
        with source.block("if n < 128:"):
            alone = self._format == ">"
            source.emit("out.append(n)" if alone else f"out += {self._packed(extra='n')}")
        with source.block("else:"):
            self.flush()
            source.emit("out += uvarint_bytes(n)")

    def _measure(self, empty: str, value: str, *, nullable: bool) -> None:
        """Turn `v` into `value`, or into `empty` where it is None, and its length into `n`."""
        source, more = self._source, " + 1" if self._flexible else ""
        lines = ([] if value == "v" else [f"v = {value}"]) + [f"n = len(v){more}"]
        if not nullable:
            source.emit(*lines)
            return
        with source.block("if v is None:"):
            source.emit(f"v = {empty}", f"n = {0 if self._flexible else -1}")
        with source.block("else:"):
            source.emit(*lines)

    def _sized(self, kind: Primitive, place: str, *, nullable: bool) -> None:
        source = self._source
        source.emit(f"v = {place}")
        if kind is primitives.STRING:
            self._measure("b''", "v.encode()", nullable=nullable)
            longest = STRING_BYTES_MAX + self._flexible
            with source.block(f"if n > {longest}:"):
                source.emit("too_long(v)")
        else:
            self._measure("b''", "v", nullable=nullable)
        self._length(kind.code)
        if kind is primitives.RECORDS:
            with source.block(f"if n > {int(self._flexible)}:"):
                source.emit("pieces.append(out)", "pieces.append(v)", "out = bytearray()")
        else:
            source.emit("out += v")

    def _array(self, kind: Array, place: str, depth: int, *, nullable: bool) -> None:
        source, element = self._source, kind.element
        source.emit(f"v = {place}")
        self._measure("()", "v", nullable=nullable)
        self._length("i")
        if isinstance(element, Primitive) and element.is_number:
            self._numbers(element)
            return
        assert not isinstance(element, Array), "Kafka has no arrays of arrays"
        item = f"o{depth + 1}"
        if self._is_bounded:
            source.emit("left -= n")
            with source.block("if left < 0:"):
                source.emit("too_wide(len(out))")
        with source.block(f"for {item} in v:"):
            if kind.encoded:
                with source.block(f"if {item}.__class__ is bytes:"):
                    source.emit(f"out += {item}", "continue")
            if isinstance(element, Primitive):
                self._field(element, item, depth, nullable=False)
            else:
                self.struct(element, item, depth + 1)
            if self._format == ">" and not isinstance(element, Primitive):
                source.emit("pass")
            self.flush()

    def _numbers(self, element: Primitive) -> None:
        source = self._source
        many = source.constant(f"many_{element.code}", primitives.PACK_ARRAY[element.code])
        with source.block("if v:"):
            source.emit("n = len(v)")
            with source.block(f"if n < {ARRAY_SMALL}:"):
                source.emit(f"out += {many}[n](*v)")
            with source.block("else:"):
                source.emit(f'out += Struct(f">{{n}}{element.code}").pack(*v)')

    def _tags(self, tagged: list[Row], target: str, depth: int) -> None:
        source = self._source
        self.flush()
        tagged = sorted(tagged, key=lambda row: row.tag or 0)
        is_set = [f"({self._is_set(row, f'{target}.{row.name}')})" for row in tagged]
        with source.block(f"if {' or '.join(is_set)}:"):
            source.emit(f"out += uvarint_bytes({' + '.join(f'bool{one}' for one in is_set)})")
            for row, condition in zip(tagged, is_set, strict=True):
                with source.block(f"if {condition}:"):
                    self._tag(row, f"{target}.{row.name}", depth)
        with source.block("else:"):
            source.emit("out.append(0)")

    def _tag(self, row: Row, place: str, depth: int) -> None:
        assert row.tag is not None
        hold = f"hold{depth}"
        tag = self._source.constant(f"tag_{row.tag}", primitives.uvarint_bytes(row.tag))
        self._source.emit(f"{hold} = out", "out = bytearray()")
        self._field(row.type, place, depth, nullable=row.is_nullable(self._version))
        self.flush()
        self._source.emit(
            f"{hold} += {tag} + uvarint_bytes(len(out))", f"{hold} += out", f"out = {hold}"
        )

    def _is_set(self, row: Row, place: str) -> str:
        """Whether a tagged field differs from its default: only then it is written."""
        if isinstance(row.type, Primitive):
            return f"{place} != {row.default!r}"
        if row.default is None:
            return f"{place} is not None"
        if row.is_nullable(self._version):
            return f"{place} is None or {place}"
        return place
