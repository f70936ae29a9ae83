"""Real programs' bars on a terminal that is narrower than the job's."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.render.renderer import Renderer
from logshipper_observe.base.bar_width import shortened
from logshipper_observe.base.output import cells_wide
from tests.programs import capture
from tests.tools.stress.model_settings import examples

TQDM = (
    "epoch 3:  44%|" + "█" * 31 + "▉" + " " * 41 + "| 437/1000 [00:12<00:16, 35.10it/s, loss=0.123]"
)
BARS = {
    "tqdm": (TQDM, "epoch 3:  44%|██████████ | 437/1000 [00:12<00:16, 35.10it/s, loss=0.123]"),
    "tqdm in ASCII": (" 44%|" + "#" * 31 + "3" + " " * 41 + "| 437/1000 [00:12<00:16]", ""),
    "tqdm at 0%": ("  0%|" + " " * 100 + "| 0/30 [00:00<?, ?it/s]", ""),
    "rich": ("Working... " + "━" * 60 + "╸" + "━" * 39 + "  60% 0:00:12", ""),
    "pip": ("     " + "━" * 30 + "╺" + "━" * 50 + " 3.7/9.9 MB 94.3 MB/s eta 0:00:01", ""),
    "pip's older one": (" 37% |" + "█" * 24 + "▏" + " " * 40 + "| 3.7MB 94.3MB/s eta 0:00:01", ""),
    "progressbar2": ("37% (37 of 100) |" + "#" * 30 + " " * 51 + "| Elapsed: 0:00:03 ETA: 0:00:05", ""),
    "click": ("Modifying  [" + "#" * 40 + "-" * 40 + "]   50%  00:00:05", ""),
    "Keras": ("391/391 " + "━" * 60 + " 12s 30ms/step - accuracy: 0.4", ""),
    "Keras 2": ("45/100 [" + "=" * 50 + ">" + "." * 49 + "] - ETA: 3s - loss: 0.1", ""),
    "wget": ("file.iso      45%[" + "=" * 40 + ">" + " " * 50 + "]   2.01M  3.05MB/s  eta 4s", ""),
    "curl": ("#" * 45 + " " * 110 + " 30.0%", ""),
    "curl at 0%": (" " * 155 + " 0.0%", ""),
    "cargo": ("    Building [" + "=" * 40 + ">" + " " * 30 + "] 6/7: some(bin test)", ""),
    "apt": ("Progress: [ 67%] [" + "#" * 80 + "." * 40 + "]", ""),
    "two streams'": (TQDM + "  " + TQDM, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BARS)
def test_a_bar_gets_shorter_and_nothing_else(name: str) -> None:
    text, expected_text = BARS[name]
    columns = 150 if name == "two streams'" else 72
    short = shortened(text, cells_wide(text) - columns)
    assert cells_wide(short) == columns
    assert _words(short) == _words(text)
    if expected_text:
        assert short.split("|")[0::2] == expected_text.split("|")[0::2]
    for size in (cells_wide(text), cells_wide(text) + 10):
        assert shortened(text, cells_wide(text) - size) == text


def _words(text: str) -> list[str]:
    """Return all but bars and blanks."""
    return re.sub(r"[#=\-_.<>\u2500-\u259f |]|(?<=#)3", " ", text).split()


@pytest.mark.parametrize("percent", range(0, 101, 10))
def test_what_is_left_shows_the_same_progress(percent: int) -> None:
    text = f"{percent:3}%|{'█' * percent}{' ' * (100 - percent)}| 1/2"
    short = shortened(text, 80)
    assert abs(short.count("█") - percent / 5) <= 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no bar, but words that go on until the terminal ends, and further than that",
        "step 151100 lr 0.07938926 [12:34<56:78, 3.2it/s] a-b-c --x 1-2 x==y",
        "[1234567890] |1234567890| [ 5 ] | - |",
        "Receiving objects: 58% (2902/5002), 220.00 KiB | 420.00 KiB/s",
    ],
)
def test_a_line_without_a_bar_stays(text: str) -> None:
    assert shortened(text, 30) == text


def test_padding_goes_where_a_bar_is_not_enough() -> None:
    text = "file" + " " * 40 + "70%[==>   ]  2.01M  3.05MB/s"
    assert shortened(text, 30).endswith(" 70%[=]  2.01M  3.05MB/s")


@given(st.text(alphabet="█#=- .>|[]5a", max_size=200), st.integers(-5, 250))
@settings(max_examples=examples(200))
def test_never_longer_and_never_shorter_than_asked(text: str, excess: int) -> None:
    short = shortened(text, excess)
    assert len(text) - max(excess, 0) <= len(short) <= len(text)
    if excess <= 0:
        assert short == text


@pytest.mark.parametrize(
    "text", ["|" + " " * 4095, "[=" * 2048, "| " * 2048, "#" * 4096, " " * 4096]
)
def test_a_hostile_line_takes_no_time(text: str) -> None:
    """The search looks at each place once; otherwise this would take minutes."""
    for _ in range(20):
        assert len(shortened(text, 4000)) < len(text) + 1


@pytest.mark.parametrize(
    "name",
    ["tqdm", "tqdm-nested", "rich-progress-transient", "pip-download", "progressbar2", "click",
     "keras-1-like", "wget", "curl", "cargo", "go-pb", "enlighten"],
)  # fmt: skip
def test_captured_bars_keep_their_words(name: str) -> None:
    """Each state that a real program drew, as a terminal of 55 columns shows it."""
    recording = capture.read(name)
    renderer = Renderer(recording.columns, recording.rows)
    bars = 0
    for data, now in recording.timed_reads():
        renderer.feed(data, now)
        for text in renderer.status().decode().split("\n"):
            if cells_wide(text) > 55 and re.search(r"[#=\-_.>━█ ]{15}", text):
                bars += 1
                short = shortened(text, cells_wide(text) - 55)
                assert cells_wide(short) == 55
                assert _words(short) == _words(text)
    assert bars
