"""Texts and colours in place of values, as fields map them."""

from collections.abc import Mapping

from logshipper_grafana.parts import Json, colors


def mapped(texts: Mapping[str, tuple[str, str]]) -> list[Json]:
    """Map values to text and colour."""
    results = {
        value: {"text": text, "color": colors.of_word(color)}
        for value, (text, color) in texts.items()
    }
    return _by_value(results)


def texts(by_value: Mapping[int, str]) -> list[Json]:
    """Map values to texts."""
    return _by_value({str(value): {"text": text} for value, text in by_value.items()})


def swatches() -> list[Json]:
    """Return the colours of jobs' numbers as cells; numbers would be unreadable on some of them."""
    by_color = colors.numbers_by_color()
    results = {number: color for color, numbers in by_color.items() for number in numbers}
    results["#"] = "transparent"  # the heading
    return _by_value({number: {"text": " ", "color": color} for number, color in results.items()})


def _by_value(results: Mapping[str, Json]) -> list[Json]:
    options = {
        value: {**result, "index": index} for index, (value, result) in enumerate(results.items())
    }
    return [{"type": "value", "options": options}]


def null_as(text: str, **more: str) -> list[Json]:
    """Map a missing value to a text. more: its colour."""
    result = {"text": text, "index": 0, **more}
    return [{"type": "special", "options": {"match": "null", "result": result}}]


def matching(pattern: str, color: str, *, index: int = 0) -> Json:
    """Colour texts that match a regular expression."""
    result = {"color": colors.of_word(color), "index": index}
    return {"type": "regex", "options": {"pattern": pattern, "result": result}}
