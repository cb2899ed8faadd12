"""Regular expressions in RE2's syntax, as far as it can tell topic names apart: text -> tree.

A topic's name is made of 65 characters, so a set of characters is an integer with a bit for each.
What RE2 has and this has not (word boundaries, named scripts but Latin) is refused with a sentence.
"""

import re
import string
from typing import Final

from msgspec import Struct

ALPHABET: Final = string.ascii_letters + string.digits + "._-"
BIT: Final = {char: 1 << place for place, char in enumerate(ALPHABET)}
EVERY: Final = (1 << len(ALPHABET)) - 1

CHARS_MAX: Final = 1_000
DEPTH_MAX: Final = 100
REPEATS_MAX: Final = 1_000
"""RE2's own."""


class PatternError(Exception):
    """What is wrong with an expression."""


class Chars(Struct, frozen=True):
    """One character of a set."""

    bits: int


class Start(Struct, frozen=True):
    """Nothing, where the name begins."""


class End(Struct, frozen=True):
    """Nothing, where the name ends."""


class Both(Struct, frozen=True):
    """One after the other."""

    parts: "tuple[Node, ...]"


class Either(Struct, frozen=True):
    choices: "tuple[Node, ...]"


class Repeat(Struct, frozen=True):
    node: "Node"
    least: int
    most: int | None


Node = Chars | Start | End | Both | Either | Repeat


def bits_of(chars: str) -> int:
    """The set of those of these characters that a name can have."""
    bits = 0
    for char in chars:
        bits |= BIT.get(char, 0)
    return bits


_LETTERS = bits_of(string.ascii_letters)
_DIGITS = bits_of(string.digits)
_WORD = _LETTERS | _DIGITS | bits_of("_")
_CLASSES: Final = {
    "d": _DIGITS,
    "D": EVERY & ~_DIGITS,
    "w": _WORD,
    "W": EVERY & ~_WORD,
    "s": 0,
    "S": EVERY,
}
_NAMED: Final = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": EVERY,
    "blank": 0,
    "cntrl": 0,
    "digit": _DIGITS,
    "graph": EVERY,
    "lower": bits_of(string.ascii_lowercase),
    "print": EVERY,
    "punct": bits_of(string.punctuation),
    "space": 0,
    "upper": bits_of(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": bits_of(string.hexdigits),
}
_UNICODE: Final = {
    "L": _LETTERS,
    "Ll": bits_of(string.ascii_lowercase),
    "Lu": bits_of(string.ascii_uppercase),
    "Latin": _LETTERS,
    "N": _DIGITS,
    "P": bits_of("._-"),
}
_ALONE: Final[dict[str, Node]] = {"^": Start(), "$": End(), ".": Chars(EVERY)}
_ESCAPED: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse(text: str) -> Node:
    """The tree of an expression; PatternError says what is wrong with it."""
    if len(text) > CHARS_MAX:
        raise PatternError(f"it has {len(text)} characters, at most {CHARS_MAX} are allowed")
    reader = _Reader(_unquoted(text))
    node = reader.alternatives(0)
    if not reader.ended():
        raise PatternError(f"unexpected {reader.peek()!r} at position {reader.position}")
    return node


_QUOTED: Final = re.compile(r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\?.", re.DOTALL)


def _unquoted(text: str) -> str:
    r"""The same expression without `\Q...\E`: what stands between is escaped one by one."""
    return _QUOTED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    quoted = found["quoted"]
    return found[0] if quoted is None else re.sub(r"([^\w])", r"\\\1", quoted)


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0
        self._fold = False
        """Whether case is of no account here."""

    def ended(self) -> bool:
        return self.position >= len(self._text)

    def peek(self) -> str:
        return self._text[self.position] if not self.ended() else ""

    def take(self, what: str) -> str:
        """The next character, which must be there."""
        if self.ended():
            raise PatternError(f"it ends within {what}")
        self.position += 1
        return self._text[self.position - 1]

    def skip(self, text: str) -> bool:
        if not self._text.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def alternatives(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise PatternError(f"groups stand more than {DEPTH_MAX} deep in one another")
        choices = [self._sequence(depth)]
        while self.skip("|"):
            choices.append(self._sequence(depth))
        return choices[0] if len(choices) == 1 else Either(tuple(choices))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.ended() and self.peek() not in "|)":
            parts.append(self._repeated(self._one(depth)))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        # How greedy it is makes no difference to whether a whole name matches.
        self.skip("?")
        if self._bounds() is not None:
            raise PatternError(f"a repetition repeated, before position {self.position}")
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self.skip("*"):
            return 0, None
        if self.skip("+"):
            return 1, None
        if self.skip("?"):
            return 0, 1
        return self._counted() if self.peek() == "{" else None

    def _counted(self) -> tuple[int, int | None] | None:
        """`{2}`, `{2,}`, `{2,5}`; a brace that begins none of them stands for itself."""
        close = self._text.find("}", self.position)
        least, comma, most = self._text[self.position + 1 : max(close, 0)].partition(",")
        if not _is_number(least) or not (most == "" or _is_number(most)):
            return None
        self.position = close + 1
        first = int(least)
        last = int(most) if most else None if comma else first
        if max(first, last or 0) > REPEATS_MAX or (last is not None and last < first):
            raise PatternError(f"{{{least}{comma}{most}}} is no count up to {REPEATS_MAX}")
        return first, last

    def _one(self, depth: int) -> Node:
        char = self.take("it")
        if char in "*+?":
            raise PatternError(
                f"nothing before {char!r} to repeat, at position {self.position - 1}"
            )
        if char == "(":
            return self._group(depth)
        if char == "\\":
            return self._escape()
        if char == "[":
            return Chars(self._folded(self._set()))
        return _ALONE.get(char) or Chars(self._folded(bits_of(char)))

    def _group(self, depth: int) -> Node:
        fold = self._fold
        if self.skip("?"):
            if self.skip("P<") or self.skip("<"):
                self._name()
            elif self._flags():
                return Both(())
        node = self.alternatives(depth + 1)
        if not self.skip(")"):
            raise PatternError("a '(' has no ')'")
        self._fold = fold
        return node

    def _name(self) -> None:
        close = self._text.find(">", self.position)
        name = self._text[self.position : max(close, 0)]
        if not name.isidentifier():
            raise PatternError(f"a group's name is not closed or no name: {name!r}")
        self.position = close + 1

    def _flags(self) -> bool:
        """Whether they stand alone, as in `(?i)`, and hold to the end of the group around."""
        on = True
        while True:
            match self.take("'(?'"):
                case "i":
                    self._fold = on
                case "m" | "s" | "U":
                    pass  # of lines and of greed: a name has one line and is matched whole
                case "-":
                    on = False
                case ":":
                    return False
                case ")":
                    return True
                case other:
                    raise PatternError(f"'(?{other}' is not supported")

    def _escape(self) -> Node:
        char = self.take("an escape")
        if char in _CLASSES:
            return Chars(_CLASSES[char])
        if char == "A":
            return Start()
        if char == "z":
            return End()
        if char in "pP":
            return Chars(self._unicode(negated=char == "P"))
        return Chars(self._folded(bits_of(self._literal(char))))

    def _unicode(self, *, negated: bool) -> int:
        name = self.take("a class of characters")
        if name == "{":
            close = self._text.find("}", self.position)
            name = self._text[self.position : max(close, 0)]
            self.position = close + 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name not in _UNICODE:
            raise PatternError(f"the class \\p{{{name}}} is not supported: a name is ASCII")
        return EVERY & ~_UNICODE[name] if negated else _UNICODE[name]

    def _literal(self, char: str) -> str:
        """The character that an escape stands for."""
        if char == "x":
            return self._hexadecimal()
        if char in _ESCAPED:
            return _ESCAPED[char]
        if char.isascii() and char.isalnum():
            raise PatternError(f"the escape '\\{char}' is not supported")
        return char

    def _hexadecimal(self) -> str:
        if self.skip("{"):
            close = self._text.find("}", self.position)
            digits = self._text[self.position : max(close, 0)]
            self.position = close + 1
        else:
            digits = self._text[self.position : self.position + 2]
            self.position += 2
        if not digits or len(digits) > 6 or not set(digits) <= set(string.hexdigits):
            raise PatternError(f"'\\x{digits}' is no character")
        number = int(digits, 16)
        if number > 0x10FFFF:
            raise PatternError(f"'\\x{{{digits}}}' is no character")
        return chr(number)

    def _set(self) -> int:
        negated = self.skip("^")
        bits = 0
        first = True
        while first or self.peek() != "]":
            bits |= self._of_set()
            first = False
        self.position += 1
        bits = self._folded(bits)
        return EVERY & ~bits if negated else bits

    def _of_set(self) -> int:
        if self.skip("[:"):
            return self._named()
        char = self.take("a set, which has no ']'")
        if char == "\\":
            char = self.take("an escape")
            if char in _CLASSES:
                return _CLASSES[char]
            if char in "pP":
                return self._unicode(negated=char == "P")
            char = self._literal(char)
        return self._range(char)

    def _named(self) -> int:
        close = self._text.find(":]", self.position)
        name = self._text[self.position : max(close, 0)]
        negated = name.startswith("^")
        bits = _NAMED.get(name.removeprefix("^"))
        if bits is None:
            raise PatternError(f"there is no class [:{name}:]")
        self.position = close + 2
        return EVERY & ~bits if negated else bits

    def _range(self, first: str) -> int:
        after = self._text[self.position + 1 : self.position + 2]
        if self.peek() != "-" or after in ("", "]"):
            return bits_of(first)
        self.position += 1
        last = self.take("a range")
        if last == "\\":
            last = self._literal(self.take("an escape"))
        if last < first:
            raise PatternError(f"the range {first}-{last} runs backwards")
        return bits_of("".join(char for char in ALPHABET if first <= char <= last))

    def _folded(self, bits: int) -> int:
        if not self._fold:
            return bits
        chars = "".join(char for char in ALPHABET if bits & BIT[char])
        return bits_of(chars.lower() + chars.upper())


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 6 and text.isascii() and text.isdigit()
