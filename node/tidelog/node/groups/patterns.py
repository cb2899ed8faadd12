"""Which names an expression matches, in time linear in their lengths.

A client sends the expression, so it is an attacker's as much as a user's: matching never goes back
(there is no backtracking to blow up), and what an expression may grow into is bounded.
"""

from collections.abc import Iterable
from typing import Final, assert_never

from msgspec import Struct

from tidelog.node.groups.pattern_syntax import (
    TOPICS,
    Alphabet,
    Both,
    Chars,
    Either,
    End,
    Node,
    PatternError,
    Repeat,
    Start,
    parse,
)
from tidelog.wire.errors import ErrorCode, Rejected

PLACES_MAX: Final = 500
"""Characters in an expression once its counted repetitions are written out."""
PARTS_MAX: Final = 4 * PLACES_MAX
"""Of any kind, so that repeating nothing at all is bounded, too."""
MOVES_KEPT_MAX: Final = 10_000

_AT_START: Final = 1
_AT_END: Final = 2


class _Piece(Struct, frozen=True):
    """A part of the automaton: which characters it may begin and end with.

    With each place stand the anchors on the ways between it and the piece's edge: sets of bits, 0
    for a way without any. `empty` are the ways through the piece without any character.
    """

    first: dict[int, frozenset[int]]
    last: dict[int, frozenset[int]]
    empty: frozenset[int]


_FREE: Final = frozenset({0})
_NEVER: Final[frozenset[int]] = frozenset()


class Pattern:
    """An expression, ready to match whole names.

    Glushkov's automaton: a place for each character of the expression, a state for each set of
    places. What it learnt of moves between sets is kept, up to a bound, so that most names cost a
    look-up for each character.
    """

    def __init__(self, text: str, alphabet: Alphabet = TOPICS) -> None:
        self._bits = alphabet.bits
        self._chars: list[int] = []
        self._follow: list[int] = []
        self._moves: dict[tuple[int, int], int] = {}
        self._parts = 0
        whole = self._build(parse(text, alphabet))
        self._begins = _mask(
            place for place, ways in whole.first.items() if _passable(ways, _AT_START)
        )
        self._ends = _mask(place for place, ways in whole.last.items() if _passable(ways, _AT_END))

    def matches(self, name: str) -> bool:
        """Whether all of the name matches, as Kafka has it: a part is not enough."""
        active = -1
        for char in name:
            bit = self._bits.get(char)
            if bit is None or not active:
                return False
            move = self._moves.get((active, bit))
            active = self._move(active, bit) if move is None else move
        return bool(active & self._ends) if active >= 0 else False

    def _move(self, active: int, bit: int) -> int:
        """The places that a character leads to; -1 stands for the beginning of the name."""
        reach = self._begins if active < 0 else self._following(active)
        after = _mask(place for place in _places(reach) if self._chars[place] & bit)
        if len(self._moves) >= MOVES_KEPT_MAX:
            self._moves.clear()
        self._moves[active, bit] = after
        return after

    def _following(self, active: int) -> int:
        reach = 0
        for place in _places(active):
            reach |= self._follow[place]
        return reach

    def _build(self, node: Node) -> _Piece:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise PatternError(f"written out it has more than {PARTS_MAX} parts")
        match node:
            case Chars(bits):
                return self._place(bits)
            case Start():
                return _Piece({}, {}, frozenset({_AT_START}))
            case End():
                return _Piece({}, {}, frozenset({_AT_END}))
            case Both(parts):
                return self._chain(parts)
            case Either(choices):
                return _merged([self._build(choice) for choice in choices])
            case Repeat(inner, least, most):
                return self._repeat(inner, least, most)
            case _:
                assert_never(node)

    def _place(self, bits: int) -> _Piece:
        place = len(self._chars)
        if place >= PLACES_MAX:
            raise PatternError(f"written out it has more than {PLACES_MAX} characters")
        self._chars.append(bits)
        self._follow.append(0)
        return _Piece({place: _FREE}, {place: _FREE}, _NEVER)

    def _chain(self, parts: Iterable[Node]) -> _Piece:
        piece = _NOTHING
        for part in parts:
            piece = self._joined(piece, self._build(part))
        return piece

    def _joined(self, left: _Piece, right: _Piece) -> _Piece:
        self._link(left, right)
        return _Piece(
            _or(left.first, {one: _and(ways, left.empty) for one, ways in right.first.items()}),
            _or(right.last, {one: _and(ways, right.empty) for one, ways in left.last.items()}),
            _and(left.empty, right.empty),
        )

    def _link(self, left: _Piece, right: _Piece) -> None:
        """Between two characters lies neither the start nor the end of a name."""
        after = _mask(place for place, ways in right.first.items() if 0 in ways)
        for place, ways in left.last.items():
            if 0 in ways:
                self._follow[place] |= after

    def _repeat(self, inner: Node, least: int, most: int | None) -> _Piece:
        piece = _NOTHING
        for _ in range(least):
            piece = self._joined(piece, self._build(inner))
        if most is None:
            again = self._build(inner)
            self._link(again, again)
            return self._joined(piece, _optional(again))
        rest = _NOTHING
        for _ in range(most - least):
            rest = _optional(self._joined(self._build(inner), rest))
        return self._joined(piece, rest)


_NOTHING: Final = _Piece({}, {}, _FREE)


def check_pattern(text: str) -> None:
    """Rejected where the expression is none."""
    try:
        Pattern(text)
    except PatternError as error:
        raise Rejected(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def _optional(piece: _Piece) -> _Piece:
    return _Piece(piece.first, piece.last, _shortest(piece.empty | _FREE))


def _merged(pieces: Iterable[_Piece]) -> _Piece:
    first: dict[int, frozenset[int]] = {}
    last: dict[int, frozenset[int]] = {}
    empty = _NEVER
    for piece in pieces:
        first = _or(first, piece.first)
        last = _or(last, piece.last)
        empty = _shortest(empty | piece.empty)
    return _Piece(first, last, empty)


def _or(
    left: dict[int, frozenset[int]], right: dict[int, frozenset[int]]
) -> dict[int, frozenset[int]]:
    both = {place: ways for place, ways in left.items() if ways}
    for place, ways in right.items():
        if ways:
            both[place] = _shortest(both.get(place, _NEVER) | ways)
    return both


def _and(left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
    if left == _FREE:
        return right
    return _shortest(frozenset(one | other for one in left for other in right))


def _shortest(ways: frozenset[int]) -> frozenset[int]:
    """Where nothing is asked, more need not be asked."""
    return _FREE if 0 in ways else ways


def _passable(ways: frozenset[int], where: int) -> bool:
    return any(way & ~where == 0 for way in ways)


def _mask(places: Iterable[int]) -> int:
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask


def _places(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
