"""Coloured words are readable on light and dark pages, with a contrast of 4.5 to 1."""

import re
from collections.abc import Iterator

import pytest

from tests.grafana.tools.frames import Json
from tests.grafana.tools.pages import dashboard, dashboards

LEAST = 4.5
# Grafana's own colours: of panels, and of its themes' colour names
PANEL = {"light": "#FFFFFF", "dark": "#181B1F"}
NAMED = {
    "light": {"blue": "#3274D9", "purple": "#A352CC", "red": "#E02F44", "semi-dark-green": "#37872D",
              "text": "#24292E"},
    "dark": {"blue": "#5794F2", "purple": "#B877D9", "red": "#F2495C", "semi-dark-green": "#56A64B",
             "text": "#CCCCDC"},
}  # fmt: skip


def luminance(color: str) -> float:
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def colors_in(model: object, keys: tuple[str, ...] = ("color", "fixedColor")) -> Iterator[str]:
    if isinstance(model, dict):
        for key, value in model.items():
            if key in keys and isinstance(value, str):
                yield value
            yield from colors_in(value, keys)
    elif isinstance(model, list):
        for value in model:
            yield from colors_in(value, keys)


def words_of(uid: str) -> Iterator[Json]:
    """Yield the models with coloured words: large numbers, and columns of tables."""
    for panel in dashboard(uid)["panels"]:
        for inside in [panel, *panel.get("panels", ())]:
            if inside["type"] == "stat":
                yield inside["fieldConfig"]
            for override in inside.get("fieldConfig", {}).get("overrides", ()):
                if {"id": "custom.displayMode", "value": "color-text"} in override["properties"]:
                    yield override


@pytest.mark.parametrize("theme", list(PANEL))
@pytest.mark.parametrize("uid", sorted(path.stem for path in dashboards()))
def test_words_in_colour_can_be_read(uid: str, theme: str) -> None:
    colors = {color for model in words_of(uid) for color in colors_in(model)}
    assert colors
    for color in colors:
        shown = color if re.fullmatch("#[0-9A-Fa-f]{6}", color) else NAMED[theme][color]
        assert round(contrast(shown, PANEL[theme]), 1) >= LEAST, color
