"""Numbers as programs print them. Pure."""

import re
from collections.abc import Iterable, Sequence

# Digits inside a word belong to the word, as in `top1`. NaN and infinity stand behind a sign;
# Fortran's exponent is D.
LITERAL = r"[-+]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eEdD][-+]?[0-9]{1,9})?"
# of a pair, in text that may be long
SHORT_LITERAL = r"[-+]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,9})?"
# Each match begins with a character of this class, so that the search skips most others at once. The
# conditions on the characters before it therefore stand behind it.
_FIRST = rb"[-+.0-9nNiI]"
_LITERAL_REST = (
    rb"(?<![A-Za-z0-9_@].)(?<![A-Za-z]-.)"
    rb"(?:(?<=[0-9])[0-9]{0,399}\.?[0-9]{0,400}"
    rb"|(?<=[-+])(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})"
    rb"|(?<=\.)[0-9]{1,400})(?:[eEdD][-+]?[0-9]{1,9})?"
)
_NOT_FINITE_REST = (
    rb"(?:(?<=[=:].)|(?<=[=:] .))"
    rb"(?:(?<=[-+])(?:nan|NaN|NAN|inf|Inf|INF|[Ii]nfinity)|(?<=n)an|(?<=N)(?:aN|AN)"
    rb"|(?<=[iI])nf(?:inity)?|(?<=I)NF)(?![A-Za-z_])"
)
NUMBER = re.compile(rb"%b(?:%b|%b)" % (_FIRST, _LITERAL_REST, _NOT_FINITE_REST))
_JSON = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
JSON_NUMBER = re.compile(_JSON)
_ARE_JSON = re.compile(rf"(?:{_JSON}(?: |$))*").fullmatch
_PARTS = re.compile(r"([-+]?)([0-9]*)(?:\.([0-9]*))?(?:[eEdD]([-+]?[0-9]+))?")


def as_json(number: str) -> str:
    """Return the number's text if it is valid JSON, otherwise the nearest JSON."""
    if JSON_NUMBER.fullmatch(number):
        return number
    match = _PARTS.fullmatch(number)
    if match is None:
        word = number.lstrip("+-").lower()
        if word == "nan":
            return "NaN"
        return "-Infinity" if number.startswith("-") else "Infinity"
    sign, whole, fraction, power = match.groups()
    text = ("-" if sign == "-" else "") + (whole.lstrip("0") or "0")
    return text + (f".{fraction}" if fraction else "") + (f"e{power}" if power else "")


def json_values(names: Iterable[str], numbers: Sequence[bytes]) -> dict[str, str]:
    """Return JSON numbers by name."""
    line = b" ".join(numbers).decode()
    texts = line.split(" ")
    return dict(zip(names, texts if _ARE_JSON(line) else map(as_json, texts), strict=True))


def as_float(number: str) -> float:
    return float(as_json(number).replace("Infinity", "inf"))


def is_fractional(number: str) -> bool:
    """Return whether a number has a fraction or an exponent."""
    return not number.lstrip("+-").isdigit()
