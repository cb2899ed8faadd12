"""The source of a reader: one function for a whole message, its structs and arrays inlined.

Fields of fixed size are collected and read by one `Struct` together with the length or tag count
that follows them. Reads past the end of the frame need no check of their own: a number raises, and
a string or a view that was cut leaves a position behind the end, which the next number or the last
line of the function refuses. Only what allocates by a count checks it first.

The names in a reader: `b` the frame, `p` the position, `end` its length, `left` the array elements
and tagged fields it may still hold, `n` the newest length or count; o, a, e and stop carry their
depth.
"""

from struct import Struct, error

from tidelog.kernel.limits import STRING_BYTES_MAX, TAGGED_FIELDS_MAX
from tidelog.wire import primitives
from tidelog.wire.errors import WireError
from tidelog.wire.primitives import ARRAY_SMALL, Primitive
from tidelog.wire.schema import Array, Row, WireType, rows_of
from tidelog.wire.source import Source, struct_name, struct_of

_NAMES = {
    "WireError": WireError,
    "bad_count": primitives.bad_count,
    "bad_length": primitives.bad_length,
    "bad_size": primitives.bad_size,
    "check_tags": primitives.check_tags,
    "error": error,
    "new": object.__new__,
    "skip_tags": primitives.skip_tags,
    "too_wide": primitives.too_wide,
    "uvarint": primitives.uvarint,
    "uvarint_rest": primitives.uvarint_rest,
    "Struct": Struct,
}


def read_source(
    cls: type, version: int, *, flexible: bool, elements_max: int, counts_numbers: bool
) -> Source:
    """`made(b, p) -> (message, position)`; TooWideError where it has more than `elements_max`
    elements. Numbers in arrays of them are elements where `counts_numbers` says so."""
    source = Source("def made(b, p):", _NAMES)
    source.emit("end = len(b)", f"left = {elements_max}")
    with source.block("try:"):
        maker = _ReadSource(source, version, flexible=flexible, counts_numbers=counts_numbers)
        maker.struct(cls, "o0", 0)
        maker.flush()
    with source.block("except (error, IndexError, UnicodeDecodeError) as failure:"):
        source.emit(f"raise WireError(f'{cls.__name__} near byte {{p}}: {{failure}}') from None")
    with source.block("if p > end:"):
        source.emit("bad_size(p, end)")
    source.emit("return o0, p")
    return source


class _ReadSource:
    def __init__(
        self, source: Source, version: int, *, flexible: bool, counts_numbers: bool
    ) -> None:
        self._source = source
        self._version = version
        self._flexible = flexible
        self._counts_numbers = counts_numbers
        self._targets: list[str] = []
        self._format = ">"

    def struct(self, cls: type, target: str, depth: int) -> None:
        """Read a struct into `target`; the caller flushes."""
        made = self._source.constant(cls.__name__, cls)
        self._source.emit(f"{target} = new({made})")
        tagged = []
        for row in rows_of(cls):
            place = f"{target}.{row.name}"
            if self._version not in row.versions:
                self._default(row, place)
            elif row.is_tagged(self._version):
                self._default(row, place)
                tagged.append(row)
            else:
                self._field(row.type, place, depth, nullable=row.is_nullable(self._version))
        if self._flexible:
            self._tags(tagged, target, depth)

    def flush(self) -> None:
        """Read the collected run of fixed-size fields."""
        if self._format == ">B":
            self._source.emit(f"{self._targets[0]} = b[p]", "p += 1")
        elif self._targets:
            run = struct_of(self._format)
            name = self._source.constant(struct_name(self._format), run.unpack_from)
            self._source.emit(f"{', '.join(self._targets)}, = {name}(b, p)", f"p += {run.size}")
        self._targets, self._format = [], ">"

    def _fixed(self, target: str, code: str) -> None:
        self._targets.append(target)
        self._format += code

    def _default(self, row: Row, place: str) -> None:
        if not row.makes_default:
            made = repr(row.default)
        elif isinstance(row.type, Array | Primitive):
            made = "[]"
        else:
            made = self._source.constant(row.type.__name__, row.type) + "()"
        self._source.emit(f"{place} = {made}")

    def _field(self, kind: WireType, place: str, depth: int, *, nullable: bool) -> None:
        if isinstance(kind, Array):
            self._array(kind.element, place, depth, nullable=nullable)
        elif not isinstance(kind, Primitive):
            self._nested(kind, place, depth, nullable=nullable)
        elif kind.size:
            self._fixed(place, kind.code)
        else:
            self._sized(kind, place, nullable=nullable)

    def _nested(self, cls: type, place: str, depth: int, *, nullable: bool) -> None:
        target = f"o{depth + 1}"
        if not nullable:
            self.struct(cls, target, depth + 1)
            self.flush()  # before a sibling takes the same name
            self._source.emit(f"{place} = {target}")
            return
        self._fixed("n", "b")
        self.flush()
        with self._source.block("if n < 0:"):
            self._source.emit(f"{place} = None")
        with self._source.block("else:"):
            self.struct(cls, target, depth + 1)
            self._source.emit(f"{place} = {target}")
            self.flush()

    def _length(self, code: str) -> None:
        """Leave a length in `n`: -1 is null, below is wrong."""
        if not self._flexible:
            self._fixed("n", code)
            self.flush()
            return
        self._fixed("n", "B")
        self.flush()
        with self._source.block("if n > 127:"):
            self._source.emit("n, p = uvarint_rest(b, p, n)")
        self._source.emit("n -= 1")

    def _null(self, place: str, *, nullable: bool) -> str:
        """Deal with a negative length; the head of the block that deals with the others."""
        if not nullable:
            with self._source.block("if n < 0:"):
                self._source.emit("bad_length(n, p)")
            return "if True:"
        with self._source.block("if n < 0:"):
            self._source.emit(f"{place} = None")
            with self._source.block("if n < -1:"):
                self._source.emit("bad_length(n, p)")
        return "else:"

    def _sized(self, kind: Primitive, place: str, *, nullable: bool) -> None:
        self._length(kind.code)
        with self._source.block(self._null(place, nullable=nullable)):
            if kind is primitives.STRING:
                with self._source.block(f"if n > {STRING_BYTES_MAX}:"):
                    self._source.emit("bad_length(n, p)")
                value = 'str(b[p:q], "utf-8")'
            elif kind is primitives.BYTES:
                value = "bytes(b[p:q])"
            else:
                value = "b[p:q]"
            self._source.emit("q = p + n", f"{place} = {value}", "p = q")

    def _array(self, element: WireType, place: str, depth: int, *, nullable: bool) -> None:
        source = self._source
        self._length("i")
        with source.block(self._null(place, nullable=nullable)):
            if isinstance(element, Primitive) and element.is_number:
                self._numbers(element, place)
                return
            smallest = self._smallest(element)
            with source.block(f"if n * {smallest} > end - p or n > left:"):
                source.emit(f"bad_count(n, p, n * {smallest} <= end - p)")
            item = f"e{depth}" if isinstance(element, Primitive) else f"o{depth + 1}"
            source.emit("left -= n", f"{place} = a{depth} = []")
            with source.block("for _ in range(n):"):
                self._element(element, item, depth)
                source.emit(f"a{depth}.append({item})")

    def _element(self, element: WireType, item: str, depth: int) -> None:
        assert not isinstance(element, Array), "Kafka has no arrays of arrays"
        if isinstance(element, Primitive):
            self._field(element, item, depth, nullable=False)
        else:
            self.struct(element, item, depth + 1)
        self.flush()

    def _numbers(self, element: Primitive, place: str) -> None:
        source = self._source
        with source.block(f"if n * {element.size} > end - p:"):
            source.emit("bad_length(n, p)")
        if self._counts_numbers:
            source.emit("left -= n")
            with source.block("if left < 0:"):
                source.emit("too_wide(p)")
        many = source.constant(f"many_{element.code}", primitives.UNPACK_ARRAY[element.code])
        with source.block(f"if n < {ARRAY_SMALL}:"):
            source.emit(f"{place} = list({many}[n](b, p))")
        with source.block("else:"):
            source.emit(f'{place} = list(Struct(f">{{n}}{element.code}").unpack_from(b, p))')
        source.emit(f"p += n * {element.size}")

    def _tags(self, tagged: list[Row], target: str, depth: int) -> None:
        source = self._source
        self._fixed("n", "B")
        self.flush()
        if not tagged:
            with source.block("if n:"):
                self._count_tags()
                source.emit("p = skip_tags(b, p, n, end)")
            return
        stop = f"stop{depth}"
        with source.block("if n:"):
            self._count_tags()
            with source.block("if n > 127:"):
                source.emit("n, p = uvarint_rest(b, p, n)", "check_tags(n)")
            with source.block("for _ in range(n):"):
                source.emit("t, p = uvarint(b, p)", "n, p = uvarint(b, p)")
                with source.block("if n > end - p:"):
                    source.emit("bad_length(n, p)")
                source.emit(f"{stop} = p + n")
                self._tag_choice(tagged, target, depth)
                with source.block(f"if p != {stop}:"):
                    source.emit(f"bad_size(p, {stop})")

    def _count_tags(self) -> None:
        """One byte says how many there are, or that there may be as many as a section can have."""
        self._source.emit(f"left -= n if n < 128 else {TAGGED_FIELDS_MAX}")
        with self._source.block("if left < 0:"):
            self._source.emit("too_wide(p)")

    def _tag_choice(self, tagged: list[Row], target: str, depth: int) -> None:
        head = "if"
        for row in tagged:
            with self._source.block(f"{head} t == {row.tag}:"):
                place = f"{target}.{row.name}"
                self._field(row.type, place, depth, nullable=row.is_nullable(self._version))
                self.flush()
            head = "elif"
        with self._source.block("else:"):
            self._source.emit(f"p = stop{depth}")

    def _smallest(self, kind: WireType) -> int:
        """The fewest bytes that a value takes; at least 1, so that it can bound a count."""
        if isinstance(kind, Array):
            return 1 if self._flexible else 4
        if isinstance(kind, Primitive):
            return kind.size or (1 if self._flexible else 2 if kind.code == "h" else 4)
        present = (row for row in rows_of(kind) if self._version in row.versions)
        size = sum(self._smallest_of(row) for row in present)
        return max(1, size + self._flexible)

    def _smallest_of(self, row: Row) -> int:
        if row.is_tagged(self._version):
            return 0
        if isinstance(row.type, type) and row.is_nullable(self._version):
            return 1
        return self._smallest(row.type)
