"""Regular expressions in RE2's syntax, as far as they can tell names apart: text -> tree.

Names are made of an alphabet that is known beforehand, so a set of characters is an integer with a
bit for each. What RE2 has and this has not (word boundaries, named scripts but Latin) is refused
with a sentence.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

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


_SPACE: Final = "\t\n\f\r "
_CLASSES: Final[Mapping[str, str]] = {
    "d": string.digits,
    "w": string.ascii_letters + string.digits + "_",
    "s": _SPACE,
}
"""Of ASCII alone, as in RE2; a capital letter stands for all others."""
_NAMED: Final[Mapping[str, str]] = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(128))),
    "blank": "\t ",
    "cntrl": "".join(map(chr, range(32))) + "\x7f",
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": _SPACE + "\v",
    "upper": string.ascii_uppercase,
    "word": string.ascii_letters + string.digits + "_",
    "xdigit": string.hexdigits,
}


def _of_category(name: str) -> Callable[[str], bool]:
    return lambda char: unicodedata.category(char).startswith(name)


def _is_latin(char: str) -> bool:
    return "LATIN" in unicodedata.name(char, "").split()


_UNICODE: Final[Mapping[str, Callable[[str], bool]]] = {
    **{name: _of_category(name) for name in ("L", "Ll", "Lu", "N", "P")},
    "Latin": _is_latin,
}


class Alphabet:
    """The characters that a name can have; no others need be told apart."""

    def __init__(self, chars: str) -> None:
        self.chars = chars
        self.bits: Mapping[str, int] = {char: 1 << place for place, char in enumerate(chars)}
        self.every = (1 << len(chars)) - 1

    @classmethod
    def of(cls, names: Iterable[str]) -> "Alphabet":
        """That of these very names."""
        return cls("".join(sorted(set().union(*names))))

    def where(self, belongs: Callable[[str], bool]) -> int:
        """The set of those that do."""
        found = 0
        for char in filter(belongs, self.chars):
            found |= self.bits[char]
        return found


TOPICS: Final = Alphabet(string.ascii_letters + string.digits + "._-")
"""That of topics' names."""
_ALONE: Final[dict[str, Node]] = {"^": Start(), "$": End()}
_ESCAPED: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse(text: str, alphabet: Alphabet) -> Node:
    """The tree of an expression; PatternError says what is wrong with it."""
    if len(text) > CHARS_MAX:
        raise PatternError(f"it has {len(text)} characters, at most {CHARS_MAX} are allowed")
    reader = _Reader(_unquoted(text), alphabet)
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

    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self._text = text
        self._alphabet = alphabet
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
            return Chars(self._set())
        if char == ".":
            return Chars(self._alphabet.every)
        return _ALONE.get(char) or Chars(self._any_of(char))

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
        if char.lower() in _CLASSES:
            return Chars(self._class(char))
        if char == "A":
            return Start()
        if char == "z":
            return End()
        if char in "pP":
            return Chars(self._unicode(negated=char == "P"))
        return Chars(self._any_of(self._literal(char)))

    def _class(self, char: str) -> int:
        return self._but(self._any_of(_CLASSES[char.lower()]), negated=char.isupper())

    def _but(self, chosen: int, *, negated: bool) -> int:
        return self._alphabet.every & ~chosen if negated else chosen

    def _unicode(self, *, negated: bool) -> int:
        name = self.take("a class of characters")
        if name == "{":
            close = self._text.find("}", self.position)
            name = self._text[self.position : max(close, 0)]
            self.position = close + 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name not in _UNICODE:
            raise PatternError(f"the class \\p{{{name}}} is not supported")
        return self._but(self._where(_UNICODE[name]), negated=negated)

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
        return self._but(bits, negated=negated)

    def _of_set(self) -> int:
        if self.skip("[:"):
            return self._named()
        char = self.take("a set, which has no ']'")
        if char == "\\":
            char = self.take("an escape")
            if char.lower() in _CLASSES:
                return self._class(char)
            if char in "pP":
                return self._unicode(negated=char == "P")
            char = self._literal(char)
        return self._range(char)

    def _named(self) -> int:
        close = self._text.find(":]", self.position)
        name = self._text[self.position : max(close, 0)]
        negated = name.startswith("^")
        chars = _NAMED.get(name.removeprefix("^"))
        if chars is None:
            raise PatternError(f"there is no class [:{name}:]")
        self.position = close + 2
        return self._but(self._any_of(chars), negated=negated)

    def _range(self, first: str) -> int:
        after = self._text[self.position + 1 : self.position + 2]
        if self.peek() != "-" or after in ("", "]"):
            return self._any_of(first)
        self.position += 1
        last = self.take("a range")
        if last == "\\":
            last = self._literal(self.take("an escape"))
        if last < first:
            raise PatternError(f"the range {first}-{last} runs backwards")
        return self._where(lambda char: first <= char <= last)

    def _any_of(self, chars: str) -> int:
        return self._where(lambda char: char in chars)

    def _where(self, belongs: Callable[[str], bool]) -> int:
        """The set of characters that do, or whose other case does where that is of no account."""
        if not self._fold:
            return self._alphabet.where(belongs)
        return self._alphabet.where(
            lambda char: any(map(belongs, (char, char.lower(), char.upper())))
        )


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 6 and text.isascii() and text.isdigit()
