"""Java's regular expressions for topic names, as Python's `re` understands them.

The option subscribePattern is Java's in Spark's Kafka connector, so it is here. Topic names have
ASCII letters, digits, '.', '_' and '-' only, so classes of characters are written out as the ASCII
characters that they have in Java. What cannot be translated is refused with a sentence.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_ASCII: Final = frozenset(map(chr, range(128)))
_DIGITS: Final = frozenset("0123456789")
_LOWER: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = frozenset(one.upper() for one in _LOWER)
_LETTERS: Final = _LOWER | _UPPER
_GRAPH: Final = frozenset(map(chr, range(0x21, 0x7F)))
_SPACE: Final = frozenset(" \t\n\x0b\f\r")
_CONTROL: Final = frozenset(map(chr, (*range(0x20), 0x7F)))
_SYMBOLS: Final = frozenset("$+<=>^`|~")
_PUNCTUATION: Final = _GRAPH - _LETTERS - _DIGITS

_SHORT: Final = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | {"_"},
    "s": _SPACE,
    "h": frozenset(" \t"),
    "v": frozenset("\n\x0b\f\r"),
}
"""After a backslash; a capital letter has all others."""
_NAMED: Final = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": _ASCII,
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": _LETTERS | _DIGITS,
    "Punct": _PUNCTUATION,
    "Graph": _GRAPH,
    "Print": _GRAPH | {" "},
    "Blank": frozenset(" \t"),
    "Cntrl": _CONTROL,
    "XDigit": _DIGITS | frozenset("abcdefABCDEF"),
    "Space": _SPACE,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaWhitespace": _SPACE | frozenset("\x1c\x1d\x1e\x1f"),
    "javaLetter": _LETTERS,
    "javaDigit": _DIGITS,
    "javaLetterOrDigit": _LETTERS | _DIGITS,
    "IsAlphabetic": _LETTERS,
    "IsLetter": _LETTERS,
    "IsLowercase": _LOWER,
    "IsUppercase": _UPPER,
    "IsDigit": _DIGITS,
    "IsLatin": _LETTERS,
    "InBasicLatin": _ASCII,
    "L": _LETTERS,
    "Ll": _LOWER,
    "Lu": _UPPER,
    "N": _DIGITS,
    "P": _PUNCTUATION - _SYMBOLS,
    "Pd": frozenset("-"),
    "Pc": frozenset("_"),
}
"""After \\p; the general categories may also have Is in front."""
_CATEGORIES: Final = frozenset({"L", "Ll", "Lu", "N", "P", "Pd", "Pc"})
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\x07", "e": "\x1b"}
_GROUPS: Final = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>")
_GROUP_NAME: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_LEADING_FLAG: Final = re.compile(r"\(\?([is]+)\)")
_GROUP_WITH_FLAG: Final = re.compile(r"\(\?([is]+):")
_REPETITION: Final = re.compile(r"\{([0-9]+)(,[0-9]*)?\}")
_MIXED: Final = "a class in a class, or &&, is not understood together with (?i)"


class JavaPatternError(ValueError):
    """A regular expression that Java refuses, or that Python cannot follow; the text says why."""


@lru_cache(maxsize=64)
def java_matcher(pattern: str) -> Callable[[str], object]:
    """Whether a topic's whole name matches, as java.util.regex.Pattern decides it."""
    translated = _Translation(pattern).whole()
    try:
        return re.compile(translated, re.ASCII).fullmatch
    except (re.error, OverflowError) as error:
        reason = re.sub(r" at position \d+.*", "", str(error))
        raise JavaPatternError(
            f"{reason}: Python's regular expressions have no such thing"
        ) from None


class _Translation:
    """One pattern on its way from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._any_case = "(?i" in text or "(?si" in text

    def whole(self) -> str:
        out = []
        leading = _LEADING_FLAG.match(self._text)
        if leading:
            self._at = leading.end()
            out.append(leading[0])
        while self._at < len(self._text):
            out.append(self._next())
        return "".join(out)

    def _next(self) -> str:
        match self._text[self._at]:
            case "\\":
                return self._escaped()
            case "[":
                return self._class()
            case "(":
                return self._group()
            case "{":
                return self._repetition()
            case one:
                self._at += 1
                return one if one in ".^$|)*+?" else re.escape(one)

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise JavaPatternError("it ends in the middle")
        self._at += 1
        return self._text[self._at - 1]

    def _group(self) -> str:
        if not self._text.startswith("(?", self._at):
            self._at += 1
            return "("
        for known in _GROUPS:
            if self._text.startswith(known, self._at):
                self._at += len(known)
                return known
        if named := _GROUP_NAME.match(self._text, self._at):
            self._at = named.end()
            return f"(?P<{named[1]}>"
        if flagged := _GROUP_WITH_FLAG.match(self._text, self._at):
            self._at = flagged.end()
            return flagged[0]
        start = self._text[self._at : self._at + 4]
        raise JavaPatternError(
            f"a group that begins with {start!r} is not understood; the flags i and s may stand at "
            "the beginning, as (?i), or before a group's colon, as (?i:a)"
        )

    def _repetition(self) -> str:
        found = _REPETITION.match(self._text, self._at)
        if found is None:
            raise JavaPatternError("'{' must begin a number of times, as {2,5}; write \\{ for it")
        self._at = found.end()
        return found[0]

    # -- after a backslash

    def _escaped(self) -> str:
        """An escape outside of a class."""
        self._at += 1
        one = self._take()
        match one:
            case "Q":
                return re.escape(self._quoted())
            case "A" | "b" | "B":
                return f"\\{one}"
            case "z" | "Z":
                return "\\Z"
            case "k":
                return f"(?P={self._braced('<', '>')})"
            case _ if one in "123456789":
                if self._text[self._at : self._at + 1].isdecimal():
                    raise JavaPatternError("a reference to a group has one digit, as \\1")
                return f"(?:\\{one})"
            case _:
                return _written(self._meant(one))

    def _meant(self, one: str) -> frozenset[str]:
        """The characters that an escape stands for, in a class and outside of one."""
        if one.lower() in _SHORT:
            known = _SHORT[one.lower()]
            return known if one.islower() else _ASCII - known
        match one:
            case "p" | "P":
                named = self._named()
                if one == "P" and self._any_case and not _same_in_both_cases(named):
                    raise JavaPatternError("\\P of one case is not understood together with (?i)")
                return named if one == "p" else _ASCII - named
            case "x":
                return frozenset(chr(self._number(2)))
            case "u":
                return frozenset(chr(self._number(4)))
            case _ if one in _ESCAPES:
                return frozenset(_ESCAPES[one])
            case _ if one.isalnum():
                raise JavaPatternError(f"\\{one} is not understood")
            case _:
                return frozenset(one)

    def _named(self) -> frozenset[str]:
        following = self._text[self._at : self._at + 1]
        name = self._braced("{", "}") if following == "{" else self._take()
        plain = name.removeprefix("Is")
        known = _NAMED.get(plain if plain in _CATEGORIES else name)
        if known is None:
            raise JavaPatternError(f"\\p{{{name}}} is not understood")
        return known

    def _number(self, digits: int) -> int:
        text = self._text[self._at : self._at + digits]
        if not re.fullmatch(r"[0-9A-Fa-f]+", text) or len(text) < digits:
            raise JavaPatternError(f"an escaped number has {digits} hexadecimal digits here")
        self._at += digits
        return int(text, 16)

    def _braced(self, opening: str, closing: str) -> str:
        end = self._text.find(closing, self._at)
        if self._take() != opening or end < 0:
            raise JavaPatternError(f"a name must follow, between {opening} and {closing}")
        name, self._at = self._text[self._at : end], end + 1
        return name

    def _quoted(self) -> str:
        end = self._text.find("\\E", self._at)
        stop, behind = (len(self._text), len(self._text)) if end < 0 else (end, end + 2)
        text, self._at = self._text[self._at : stop], behind
        return text

    # -- classes of characters

    def _class(self) -> str:
        start = self._at
        negated = self._text.startswith("[^", start)
        members = self._members()
        if not self._any_case:
            return _written(members)
        text = self._text[start + 1 : self._at]
        if "&&" in text or "[" in text:
            raise JavaPatternError(_MIXED)
        # Under (?i) what is left out is left out in both cases, so the class stays negated.
        return _written(_ASCII - members, negated=True) if negated else _written(members)

    def _members(self) -> frozenset[str]:
        """The characters of a class, from its opening bracket to its closing one."""
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        found = self._union()
        while self._text.startswith("&&", self._at):
            self._at += 2
            found &= self._union()
        self._at += 1
        return _ASCII - found if negated else found

    def _union(self) -> frozenset[str]:
        """Up to `&&`, or the bracket that closes the class."""
        if self._text.startswith("&", self._at):
            raise JavaPatternError("write \\& for '&' where a side of && begins")
        start, found = self._at, frozenset[str]()
        while not self._text.startswith(("&&", "]"), self._at):
            found |= self._members() if self._text.startswith("[", self._at) else self._range()
        if self._at == start:
            raise JavaPatternError("a class, or a side of && in it, begins with ']' or is empty")
        return found

    def _range(self) -> frozenset[str]:
        first = self._one()
        following = self._text[self._at : self._at + 2]
        if not following.startswith("-") or following in {"-]", "-[", "-"}:
            return first
        self._at += 1
        last = self._one()
        if len(first) != 1 or len(last) != 1 or (low := min(first)) > (high := min(last)):
            raise JavaPatternError("a range must go from a character to one that is not before it")
        return frozenset(map(chr, range(ord(low), min(ord(high) + 1, len(_ASCII)))))

    def _one(self) -> frozenset[str]:
        one = self._take()
        if one != "\\":
            return frozenset(one)
        if self._text.startswith("Q", self._at):
            raise JavaPatternError("\\Q is not understood in a class")
        return self._meant(self._take())


def _same_in_both_cases(members: frozenset[str]) -> bool:
    return members == {one.swapcase() for one in members}


def _written(members: frozenset[str], *, negated: bool = False) -> str:
    """A class of these characters."""
    if not members:
        return r"[^\x00-\uffff]" if not negated else r"[\x00-\uffff]"
    if len(members) == 1 and not negated:
        return re.escape(min(members))
    return f"[{'^' * negated}{''.join(re.escape(one) for one in sorted(members))}]"
