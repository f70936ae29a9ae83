"""Makes texts safe: the one table of characters that untrusted text must not send to a terminal or
its reader.

Users and jobs write names, notes and lines. All output passes them through `safe` (or one of the
others) last. Pure.
"""

from logshipper.late_pattern import late_pattern

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_CONTROL_CHARS = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"  # C0, DEL, C1: a terminal obeys them; surrogates: not valid UTF-8
_ORDER_CHARS = (
    r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # show text in another order, or begin a line
)
_CONTROLS = late_pattern(f"[{_CONTROL_CHARS}]")
_UNSAFE = late_pattern(f"[{_CONTROL_CHARS}{_ORDER_CHARS}]")
_UNSAFE_IN_LINES = late_pattern(f"(?!\\n)[{_CONTROL_CHARS}{_ORDER_CHARS}]")


def safe(text: str) -> str:
    """Return one line for a terminal, without control characters, surrogates, and characters that
    reorder others."""
    return text if text.isprintable() else _UNSAFE.sub(REPLACEMENT, text)


def safe_lines(text: str) -> str:
    """Return several lines, as `safe`; line feeds stay."""
    return text if text.isprintable() else _UNSAFE_IN_LINES.sub(REPLACEMENT, text)


def safe_json(text: str) -> str:
    """JSON that says the same in characters that are safe; line feeds between its values stay."""
    return _UNSAFE_IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def without_controls(text: str) -> str:
    """Return a text for storage: replaces characters that no file or database line can hold; the
    writer's order of characters stays."""
    return text if text.isprintable() else _CONTROLS.sub(REPLACEMENT, text)
