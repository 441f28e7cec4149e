"""Finding personal data: e-mail addresses, telephone numbers, cards, IBANs, Chinese resident identity numbers.

Whether something is found at a place depends on the text from one character before that place to at most `REACH`
characters behind it, and on nothing else. That is what lets a stream be read piece by piece with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum

# No match is longer; one more character may be looked at behind it.
REACH = 330


class Kind(Enum):
    """A kind of personal data; the value is its name in proctor.toml."""

    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"
    IBAN = "iban"
    RESIDENT_ID = "resident_id"

    @property
    def mask(self) -> str:
        """What stands in its place."""
        return _MASKS[self]


_MASKS = {
    Kind.EMAIL: "[e-mail]",
    Kind.PHONE: "[phone]",
    Kind.CARD: "[card]",
    Kind.IBAN: "[IBAN]",
    Kind.RESIDENT_ID: "[resident id]",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Where something was found."""

    start: int
    end: int
    kind: Kind


# Where anything may begin: a letter or digit that does not continue a word, a plus, an opening bracket.
_START = re.compile(r"(?<![A-Za-z0-9._%+\-])[A-Za-z0-9]|(?<![A-Za-z0-9])[+(]|(?<=[.\-+_%])[A-Za-z0-9]")
_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+\-])[A-Za-z0-9](?:[A-Za-z0-9._%+\-]{0,62}[A-Za-z0-9_])?"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?\.){1,3}[A-Za-z]{2,24}(?![A-Za-z0-9\-])"
)
_CARD = re.compile(r"(?<![0-9A-Za-z])[2-6]\d{3}(?:([ -]?)\d{4})(?:\1\d{4})\1\d{1,4}(?:\1\d{1,3})?(?![0-9A-Za-z])")
_AMEX = re.compile(r"(?<![0-9A-Za-z])3[47]\d{2}([ -]?)\d{6}\1\d{5}(?![0-9A-Za-z])")
_IBAN = re.compile(r"(?<![0-9A-Za-z])[A-Z]{2}\d{2}")
_RESIDENT = re.compile(r"(?<![0-9A-Za-z])\d{17}[\dXx](?![0-9A-Za-z])")
_PHONES = (
    # +49 151 2345678, +1 (415) 555-0132, +86 138 0013 8000
    re.compile(r"(?<![0-9A-Za-z+])\+[1-9]\d{0,2}(?:[ .\-]?\(?\d{1,5}\)?){1,6}(?![0-9A-Za-z])"),
    # (415) 555-0132, 415-555-0132
    re.compile(r"(?<![0-9A-Za-z(])(?:\(\d{3}\) ?|\d{3}[.\-])\d{3}[.\-]\d{4}(?![0-9A-Za-z])"),
    # 138 0013 8000, 13800138000
    re.compile(r"(?<![0-9A-Za-z])1[3-9]\d([ -]?)\d{4}\1\d{4}(?![0-9A-Za-z])"),
    # 0151 23456789, 030/1234567
    re.compile(r"(?<![0-9A-Za-z])0[1-9]\d{1,4}[ /\-]\d{5,9}(?![0-9A-Za-z])"),
)
# Lengths by country, from the SWIFT IBAN registry, release 99.
_IBAN_LENGTHS = {
    code: int(length)
    for length, codes in {
        "15": "NO", "16": "BE", "18": "DK FI FO GL NL FK", "19": "MK SI", "20": "AT BA EE KZ LT LU XK MN",
        "21": "CH HR LI LV", "22": "BG BH CR DE GB GE IE ME RS VA", "23": "AE GI IL IQ TL OM SO",
        "24": "AD CZ ES MD PK RO SA SE SK TN VG", "25": "LY PT ST", "26": "IS TR", "27": "FR GR IT MC MR SM BI DJ",
        "28": "AL AZ BY CY DO GT HU LB PL SV NI", "29": "BR EG PS QA UA", "30": "JO KW MU", "31": "MT SC", "32": "LC",
        "33": "RU",
    }.items()
    for code in codes.split()
}  # fmt: skip
# What may still become a match when more text comes, up to the end of what is there.
_UNFINISHED = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9._%+\-]*(?:@[A-Za-z0-9.\-]*)?"
    r"|[+(]?\d[\d .()/\-]*"
    r"|[A-Z]{2}\d{2}[A-Z0-9 ]*"
    r"|\d[\d -]*[Xx]"
    r"|[+(])\Z"
)


def find(text: str, kinds: Collection[Kind], start: int = 0) -> Iterator[Span]:
    """Yield what is found from `start` on, from left to right, nothing inside anything else."""
    position = start
    while (begin := _START.search(text, position)) is not None:
        found = [Span(begin.start(), end, kind) for kind in kinds if (end := _end(text, begin.start(), kind))]
        if found:
            longest = max(found, key=lambda span: (span.end, -list(Kind).index(span.kind)))
            yield longest
            position = longest.end
        else:
            position = begin.start() + 1


def settled(text: str) -> int:
    """Return up to where more text behind `text` cannot change what is found."""
    floor = max(len(text) - REACH, 0)
    unfinished = _UNFINISHED.search(text, floor)
    return unfinished.start() if unfinished else len(text)


def _end(text: str, at: int, kind: Kind) -> int:
    """Return where a match that begins at `at` ends; 0 when there is none."""
    found: re.Match[str] | None = None
    match kind:
        case Kind.EMAIL:
            found = _EMAIL.match(text, at)
        case Kind.CARD:
            found = next((m for p in (_AMEX, _CARD) if (m := p.match(text, at)) and luhn(m.group())), None)
        case Kind.IBAN:
            return _iban_end(text, at)
        case Kind.RESIDENT_ID:
            found = _RESIDENT.match(text, at)
            found = found if found and resident_id(found.group()) else None
        case Kind.PHONE:
            found = next((m for p in _PHONES if (m := p.match(text, at)) and _is_phone(m.group())), None)
    return found.end() if found else 0


def luhn(number: str) -> bool:
    """Whether the digits of `number` pass the check of ISO/IEC 7812."""
    digits = [int(c) for c in number if c.isdigit()]
    if not 13 <= len(digits) <= 19:
        return False
    doubled = (d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def resident_id(number: str) -> bool:
    """Whether `number` is a Chinese resident identity number: a real day of birth and the check of GB 11643."""
    try:
        date(int(number[6:10]), int(number[10:12]), int(number[12:14]))
    except ValueError:
        return False
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(weight * int(digit) for weight, digit in zip(weights, number, strict=False))
    return "10X98765432"[total % 11] == number[17].upper()


def iban(number: str) -> bool:
    """Whether `number`, without spaces, passes the check of ISO 13616."""
    moved = number[4:] + number[:4]
    return int("".join(str(int(c, 36)) for c in moved)) % 97 == 1


def _iban_end(text: str, at: int) -> int:
    head = _IBAN.match(text, at)
    length = _IBAN_LENGTHS.get(text[at : at + 2]) if head else None
    if length is None:
        return 0
    number, position = "", at
    while len(number) < length and position < len(text):
        char = text[position]
        if char == " " and len(number) % 4 == 0 and number and text[position - 1] != " ":
            position += 1
            continue
        if not (char.isascii() and (char.isdigit() or char.isupper())):
            return 0
        number += char
        position += 1
    follows = text[position : position + 1]
    whole = len(number) == length and not (follows.isascii() and follows.isalnum())
    return position if whole and iban(number) else 0


def _is_phone(number: str) -> bool:
    return 8 <= sum(c.isdigit() for c in number) <= 15
