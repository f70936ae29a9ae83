"""A capture keeps no secrets of well-known shapes (R33), for all places and forms of output.

Each test has one capture for each secret and place, in this process.
tests/logshipper/process/test_masked_shapes_stored.py searches the stored files.
"""

import json
from collections.abc import Callable, Iterable, Sequence

import pytest

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.config import METADATA_KINDS
from logshipper.render.colours import stripped
from logshipper.sidecar.context import masked_command
from logshipper.spool.segment import MAX_LINE_BYTES, Kind, Stream
from tests.tools.captures.shaped_secrets import (
    BY_NAME,
    OF_ISSUE,
    PRINTED,
    SHOWN_WORDS,
    WORDS,
    Printed,
    Words,
    is_revealed,
    revealed,
)

OUT, ERR = Stream.STDOUT, Stream.STDERR
COLUMNS = 160  # the terminal wraps a longer bar, and text over its rows is then different
ONE_LINE = tuple(secret for secret in PRINTED if len(secret.lines) == 1)
SHORT = tuple(secret for secret in ONE_LINE if len(secret.text) < COLUMNS - 20)
KEYS = tuple(secret for secret in PRINTED if len(secret.lines) > 1)
BEFORE, AFTER = b"first line\n", b"\nlast line\n"


class Capture:
    """A capture that keeps all its texts, including those of a live status."""

    def __init__(self, **options: object) -> None:
        self._classifier = Classifier("enabled", **options)  # type: ignore[arg-type]  # options of several types
        self._now = 1.0
        self.texts: list[str] = []

    def feed(self, data: bytes, stream: Stream = OUT) -> None:
        self._classifier.feed(stream, data, self._now)
        self._collect()

    def wait(self, secs: float) -> None:
        self._now += secs
        self._classifier.tick(self._now)
        self._collect()

    def measure(self, record: bytes) -> None:
        self._classifier.take_measurements([record], self._now)
        self._collect()

    def end(self) -> list[str]:
        """End both streams, and return all texts."""
        for stream in (OUT, ERR):
            self._classifier.end(stream, self._now)
        self._collect()
        return self.texts

    def _collect(self) -> None:
        for item in self._classifier.take():
            if isinstance(item, LoggedEvent):
                self.texts.append(json.dumps(item.record))
            else:
                self.texts.append(stripped(item.text).decode() + json.dumps(item.attrs))
        self.texts += [stripped(text).decode() for text in self._classifier.live().values()]


def coloured(text: str) -> bytes:
    """Return the text with a new colour every seven characters, even inside a token."""
    parts = [text[at : at + 7] for at in range(0, len(text), 7)]
    return (
        "".join(f"\x1b[{31 + n % 6}m{part}" for n, part in enumerate(parts)).encode() + b"\x1b[0m"
    )


def coloured_lines(secret: Printed) -> bytes:
    return b"\n".join(map(coloured, secret.lines))


def printed(data: bytes, *, stream: Stream = OUT, **options: object) -> list[str]:
    capture = Capture(**options)
    capture.feed(BEFORE + data + AFTER, stream)
    texts = capture.end()
    assert any("last line" in text for text in texts), "what follows is shown"
    return texts


def by_bytes(data: bytes, secs: float, **options: object) -> list[str]:
    capture = Capture(**options)
    for at in range(len(data)):
        capture.feed(data[at : at + 1])
        capture.wait(secs)
    return capture.end()


def bar(secret: Printed, stream: Stream = ERR) -> list[str]:
    """Return the texts of a running bar, up to its last state, and its notes."""
    capture = Capture(snapshot_secs=10.0)
    for percent in range(0, 100, 20):
        capture.feed(f"\r{percent}%|####    | {secret.text}".encode(), stream)
        capture.wait(11.0)
    return capture.end()


def several_bars(secret: Printed) -> list[str]:
    capture = Capture(snapshot_secs=10.0)
    for percent in range(0, 100, 20):
        capture.feed(f"outer {percent}%\r\n{secret.text}\x1b[A\r".encode())
        capture.wait(11.0)
    return capture.end()


def repeated(secret: Printed) -> list[str]:
    capture = Capture()
    for _ in range(20):
        capture.feed(secret.text.encode() + b"\n")
        capture.wait(1.0)
    return capture.end()


def measured(secret: Printed) -> list[str]:
    capture = Capture()
    record = {"loss": 0.1, "text": secret.text, "tags": {"where": secret.text, secret.text: "x"}}
    capture.measure(json.dumps(record).encode())
    return capture.end()


def redrawn(secret: Printed) -> list[str]:
    """Return the texts of a line that the cursor overwrites half by half."""
    half = len(secret.text) // 2
    return printed(f"{'.' * half}{secret.text[half:]}\r{secret.text[:half]}".encode())


def stderr_between(secret: Printed) -> list[str]:
    capture = Capture()
    half = len(secret.text) // 2
    capture.feed(secret.text[:half].encode())
    capture.feed(b"a line of the other stream\n", ERR)
    capture.feed(secret.text[half:].encode() + b"\n")
    return capture.end()


def told(secret: Printed) -> bytes:
    """Return events from the job itself."""
    events = [{"name": "x", "note": secret.text}, {"name": secret.text[:200]}, secret.text[:200]]
    lines = [f"/LOGCOMMAND {json.dumps({'event': event})}" for event in events]
    return "\n".join(lines).encode()


def nearly_records(secret: Printed) -> Iterable[bytes]:
    quoted = json.dumps(secret.text)
    yield f'epoch 1: {{"loss": 0.3, "k": {quoted}}}'.encode()
    yield f'{{"loss": 0.3, "k": {quoted}}} after'.encode()
    yield f"{{'loss': 0.3, 'k': {secret.text!r}}}".encode()


Place = Callable[[Printed], list[str]]
PLACES: dict[str, Place] = {
    "a line": lambda secret: printed(secret.text.encode()),
    "stderr": lambda secret: printed(secret.text.encode(), stream=ERR),
    "colours": lambda secret: printed(coloured_lines(secret)),
    "kept colours": lambda secret: printed(coloured_lines(secret), keep_colours=True),
    "kept plain": lambda secret: printed(secret.text.encode(), keep_colours=True),
    "a record's value": lambda secret: printed(json.dumps({"n": 1, "k": secret.text}).encode()),
    "a record's list": lambda secret: printed(json.dumps({"k": [[secret.text]]}).encode()),
    "a record's key": lambda secret: printed(json.dumps({secret.text: 1}).encode()),
    "a dict": lambda secret: printed(
        repr({"loss": 1, "k": secret.text}).encode(), metadata=METADATA_KINDS
    ),
    "pairs": lambda secret: printed(
        f"loss=0.1 acc=0.5 {secret.text}".encode(), metadata=METADATA_KINDS
    ),
    "JSON where dicts are read": lambda secret: printed(
        json.dumps({"n": 1, "k": secret.text}).encode(), metadata=METADATA_KINDS
    ),
    "a bar": bar,
    "a bar of stdout": lambda secret: bar(secret, OUT),
    "two bars": several_bars,
    "repeats": repeated,
    "measurements": measured,
    "redrawn": redrawn,
    "the other stream between": stderr_between,
    "user events": lambda secret: printed(told(secret)),
    "user events of stderr": lambda secret: printed(told(secret), stream=ERR),
    "refused commands": lambda secret: printed(
        f'/LOGCOMMAND {{"mode": {json.dumps(secret.text)}}}'.encode()
    ),
    "hints": lambda secret: [t for line in nearly_records(secret) for t in printed(line)],
    "hints of stderr": lambda secret: [
        text for line in nearly_records(secret) for text in printed(line, stream=ERR)
    ],
    "writes of a byte": lambda secret: by_bytes(secret.text.encode() + b"\n", 0.001),
    "slow writes of a byte": lambda secret: by_bytes(secret.text.encode() + b"\n", 1.0),
    "coloured bytes": lambda secret: by_bytes(coloured(secret.text) + b"\n", 1.0),
    "kept coloured bytes": lambda secret: by_bytes(
        coloured(secret.text) + b"\n", 0.2, keep_colours=True
    ),
    "no end of line": lambda secret: by_bytes(secret.text.encode(), 0.001),
    "CR LF": lambda secret: printed(secret.text.replace("\n", "\r\n").encode() + b"\r\n"),
    "not collapsed": lambda secret: printed(secret.text.encode(), collapse=False),
    "beside a long text": lambda secret: printed(
        f"{'x ' * 4000}{secret.text}{' y' * 4000}".encode()
    ),
}
OF_ROWS = frozenset(("redrawn", "a bar", "a bar of stdout", "two bars"))
OF_LINES = frozenset(
    ("pairs", "repeats", "coloured bytes", "kept coloured bytes", "hints of stderr")
)


@pytest.mark.parametrize("place", PLACES)
def test_no_printed_secret_is_kept(place: str) -> None:
    secrets = SHORT if place in OF_ROWS else ONE_LINE if place in OF_LINES else PRINTED
    assert [secret.name for secret in secrets if revealed([secret], PLACES[place](secret))] == [], (
        place
    )


@pytest.mark.parametrize("secret", KEYS, ids=lambda secret: secret.name)
@pytest.mark.parametrize("prefix", ["", "  ", "web-1  | ", "2026-01-01 12:00:00,123 INFO x: ", "+"])
def test_each_line_of_a_private_key_is_masked(secret: Printed, prefix: str) -> None:
    """Also for a key that arrives bit by bit, with lines of the other stream between."""
    capture = Capture()
    capture.feed(b"first line\n")
    for line in secret.lines:
        capture.feed(f"{prefix}{line}\n".encode())
        capture.feed(b"something else\n", ERR)
        capture.wait(3.0)
    capture.feed(b"last line\n")
    texts = capture.end()
    assert revealed([secret], texts) == []
    assert any("last line" in text for text in texts)


@pytest.mark.parametrize("line", ["loss: 0.25,", "Traceback (most recent call last):", "done."])
def test_a_private_key_without_end_hides_no_log(line: str) -> None:
    """After the key's lines, only the last word of the next line may be masked, as the key's
    possible end."""
    lines = [*KEYS[0].lines[:3], line, *(f"epoch {n}" for n in range(200)), "last line"]
    texts = "".join(printed("\n".join(lines).encode()))
    assert line in texts
    assert [f"epoch {n}" in texts for n in range(200)] == [True] * 200


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept colours"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("name", ["GitHub ghp", "JSON web token", "signature of AWS", "OpenAI"])
def test_a_secret_at_the_end_of_a_part_is_masked(name: str, share: float, kept: bool) -> None:
    """A line over MAX_LINE_BYTES comes in parts, and the cut is inside the secret."""
    (secret,) = (secret for secret in OF_ISSUE if secret.name == name)
    begin = secret.text.index(secret.secret[:8])
    size = MAX_LINE_BYTES - begin - int(len(secret.secret) * share)
    line = b"x " * (size // 2) + secret.text.encode() + b" y" * 100
    capture = Capture(keep_colours=kept)
    capture.feed((b"\x1b[31m" if kept else b"") + line + b"\n")
    texts = [text.rpartition("\n")[0] for text in capture.end()]
    assert revealed([secret], [*texts, "".join(texts)]) == []


@pytest.mark.parametrize("mode", ["metadata", "disabled"])
def test_no_secret_is_kept_in_other_modes(mode: str) -> None:
    for secret in ONE_LINE:
        classifier = Classifier(mode)
        lines = [json.dumps({"k": secret.text}).encode(), *nearly_records(secret), told(secret)]
        classifier.feed(OUT, b"\n".join(lines) + b"\n", 1.0)
        classifier.end(OUT, 2.0)
        texts = [repr(item) for item in classifier.take()]
        assert revealed([secret], texts) == []


def test_a_masked_record_is_a_record() -> None:
    """JSON stays JSON, so it is metadata."""
    for secret in PRINTED:
        classifier = Classifier("enabled")
        record = {"n": 1, "k": secret.text, "l": [secret.text], "e": "end"}
        classifier.feed(OUT, json.dumps(record).encode() + b"\n", 1.0)
        (line,) = (item for item in classifier.take() if isinstance(item, LoggedLines))
        assert line.kind is Kind.METADATA, (secret.name, line.text)
        assert json.loads(line.text) | {"k": "", "l": []} == {**record, "k": "", "l": []}


def unmasked(words: Sequence[Words]) -> list[str]:
    return [
        secret.name
        for secret in words
        if is_revealed(secret.secret, "\n".join(masked_command(secret.argv)))
    ]


def test_no_secret_of_a_command_line_is_kept() -> None:
    assert unmasked(WORDS) == []


def test_no_printed_secret_on_a_command_line_is_kept() -> None:
    words = [
        Words(secret.name, secret.secret, argv)
        for secret in (*PRINTED, *BY_NAME)
        for argv in (("train", "--note", secret.text), ("sh", "-c", f"echo '{secret.text}'; x"))
    ]
    assert unmasked(words) == []


@pytest.mark.parametrize("argv", SHOWN_WORDS, ids=lambda argv: argv[0])
def test_words_that_are_no_secrets_are_kept(argv: tuple[str, ...]) -> None:
    assert masked_command(argv) == list(argv)


@pytest.mark.parametrize("secret", WORDS, ids=lambda secret: secret.name)
def test_a_masked_command_line_still_tells_the_program(secret: Words) -> None:
    assert masked_command(secret.argv)[0] == secret.argv[0]
