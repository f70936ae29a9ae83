"""Numbers as programs print them. Pure."""

import re

# Digits inside a word belong to the word, as in `top1`. NaN and infinity stand behind a sign;
# Fortran's exponent is D.
LITERAL = r"[-+]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eEdD][-+]?[0-9]{1,9})?"
# of a pair, in text that may be long
SHORT_LITERAL = r"[-+]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,9})?"
NUMBER = re.compile(
    rb"(?<![A-Za-z0-9_@])(?<![A-Za-z]-)%b"
    rb"|(?:(?<=[=:])|(?<=[=:] ))[-+]?(?:nan|NaN|NAN|inf|Inf|INF|[Ii]nfinity)(?![A-Za-z_])"
    % LITERAL.encode()
)
JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
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


def as_float(number: str) -> float:
    return float(as_json(number).replace("Infinity", "inf"))


def is_fractional(number: str) -> bool:
    """Return whether a number has a fraction or an exponent."""
    return not number.lstrip("+-").isdigit()
