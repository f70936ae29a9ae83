"""Record README's animation, docs/images/terminal.svg: `python -m docs.tools.animation` (`make
pictures`).

A terminal emulator shows real commands: a captured training run (train.py), its log and a plot. The picture
holds each state of the screen below the last one, and moves from one to the next. Readers who
prefer reduced motion see the last state.
"""

import html
import os
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

import pyte
from pyte.screens import Char

from examples.demo_console import run_in_terminal

TARGET = Path(__file__).resolve().parents[1] / "images" / "terminal.svg"
SIZE = os.terminal_size((84, 22))
COMMANDS = (
    "logshipper run -- python train.py",
    "logshipper logs last --tail 4",
    "logshipper plot last --y loss",
)
_FRAME_SECS, _FRAMES = 0.12, 40  # of a running command: time of a state, their largest number
_KEYS, _KEY_SECS, _READ_SECS = (
    3,
    0.12,
    2.5,
)  # characters typed at once, their time; to read an answer
_CHAR_WIDTH, _LINE_HEIGHT, _MARGIN = 8.4, 18, 12
_COLOURS = {
    "default": "#d4d7dc", "black": "#5c6370", "red": "#f47174", "green": "#8ccf7e", "brown": "#e5c76b",
    "blue": "#67b0e8", "magenta": "#c47fd5", "cyan": "#6cbfbf", "white": "#ffffff", "brightblack": "#8a919c",
}  # fmt: skip
Rows = tuple[str, ...]  # a state of the screen: each row as SVG


class Recording:
    """A screen, and its states with their seconds."""

    def __init__(self) -> None:
        self.screen = pyte.Screen(SIZE.columns, SIZE.lines)
        self.stream = pyte.ByteStream(self.screen)
        self.states: list[tuple[Rows, float]] = []

    def type(self, command: str) -> None:
        self.stream.feed(b"\x1b[32m$\x1b[0m ")
        for at in range(0, len(command), _KEYS):
            self.stream.feed(command[at : at + _KEYS].encode())
            self.keep(_KEY_SECS)
        self.stream.feed(b"\r\n")

    def run(self, command: str, environment: dict[str, str]) -> None:
        shown: list[Rows] = []
        last = time.monotonic()

        def take(data: bytes) -> None:
            nonlocal last
            if time.monotonic() - last > _FRAME_SECS:  # the pause before this data showed the state
                last = time.monotonic()
                shown.append(self.rows())
            self.stream.feed(data)

        if code := run_in_terminal(command.split(), environment, SIZE, take):
            sys.exit(f"`{command}` ended with exit code {code}: {' '.join(self.screen.display)}")
        for at in range(min(len(shown), _FRAMES)):
            self.states.append((shown[at * len(shown) // min(len(shown), _FRAMES)], _FRAME_SECS))
        self.keep(_READ_SECS)

    def keep(self, secs: float) -> None:
        self.states.append((self.rows(), secs))

    def rows(self) -> Rows:
        return tuple(row(self.screen.buffer[at]) for at in range(SIZE.lines))


def row(cells: dict[int, Char]) -> str:
    """Return a row as SVG: a text for each run of equal cells, as wide as its cells."""
    runs = []
    for (colour, bold), group in groupby(
        range(SIZE.columns), key=lambda at: (cells[at].fg, cells[at].bold)
    ):
        at = list(group)
        text = "".join(cells[column].data for column in at)
        first = at[0] + len(text) - len(text.lstrip())
        if text := text.strip():
            fill = _COLOURS.get(colour, f"#{colour}" if len(colour) == 6 else _COLOURS["default"])
            style = f' fill="{fill}"' if colour != "default" else ""
            style += ' font-weight="bold"' if bold else ""
            width = f"{len(text) * _CHAR_WIDTH:.1f}"
            runs.append(
                f'<text x="{first * _CHAR_WIDTH:.1f}" textLength="{width}"{style}>{html.escape(text)}</text>'
            )
    return "".join(runs)


def picture(states: list[tuple[Rows, float]]) -> str:
    """Return the SVG of an endless animation."""
    width = round(SIZE.columns * _CHAR_WIDTH + 2 * _MARGIN)
    height = SIZE.lines * _LINE_HEIGHT + 2 * _MARGIN
    names: dict[str, str] = {}  # of rows
    total = sum(secs for _, secs in states)
    steps, frames, passed = [], [], 0.0
    for at, (rows, secs) in enumerate(states):
        steps.append(f"{100 * passed / total:.2f}%{{transform:translateY({-at * height}px)}}")
        passed += secs
        for line, text in enumerate(rows):
            if text:
                name = names.setdefault(text, f"r{len(names)}")
                y = at * height + (line + 1) * _LINE_HEIGHT
                frames.append(f'<use href="#{name}" y="{y}"/>')
    defs = "".join(f'<g id="{name}">{text}</g>' for text, name in names.items())
    last = -(len(states) - 1) * height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        "<title>A captured training run, its log and its curve in a terminal</title>\n"
        f"<style>@keyframes play{{{''.join(steps)}}}\n"
        "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}\n"
        f"#film{{animation:play {total:.1f}s step-end infinite}}\n"
        f"@media(prefers-reduced-motion:reduce){{#film{{animation:none;transform:translateY({last}px)}}}}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#1b1e24"/>\n<defs>{defs}</defs>\n'
        f'<svg x="{_MARGIN}" y="{_MARGIN - 4}" width="{width - _MARGIN}" height="{height - _MARGIN}">'
        f'<g id="film" fill="{_COLOURS["default"]}">{"".join(frames)}</g></svg>\n</svg>\n'
    )


def main() -> None:
    recording = Recording()
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "HOME": home,
            "LANG": "C.UTF-8",
            "LOGSHIPPER_AGENT_SOCKET": "",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
        }
        os.chdir(Path(__file__).parent)  # of train.py
        for command in COMMANDS:
            recording.type(command)
            recording.run(command, environment)
    recording.keep(_READ_SECS)
    TARGET.write_text(picture(recording.states), "utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes, {len(recording.states)} states")


if __name__ == "__main__":
    main()
