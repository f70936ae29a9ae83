"""A capture logs no secrets in any kind of entry, and an event counts them (R33)."""

from itertools import pairwise

import pytest

from logshipper.classify.capture_log import MASKED_SECS
from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.spool.segment import Kind, Stream

TOKEN = "ghp" + "_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


def entries(classifier: Classifier) -> list[tuple[str, str]]:
    shown = []
    for item in classifier.take():
        if isinstance(item, LoggedLines):
            shown.append((item.kind.name.lower(), item.text.decode()))
        else:
            shown.append(("event", str(item.record.get("message", item.record))))
    return shown


def logged(
    text: str,
    mode: str = "enabled",
    stream: Stream = Stream.STDOUT,
    *,
    keep_colours: bool = False,
    mask: bool = True,
) -> list[tuple[str, str]]:
    classifier = Classifier(mode, keep_colours=keep_colours, mask=mask)
    classifier.feed(stream, text.encode(), 0.0)
    for ended in (Stream.STDOUT, Stream.STDERR):
        classifier.end(ended, 1.0)
    return entries(classifier)


COUNTED = ("event", "1 value masked: GitHub token")


@pytest.mark.parametrize("stream", [Stream.STDOUT, Stream.STDERR])
def test_lines(stream: Stream) -> None:
    assert logged(f"token {TOKEN}\n", stream=stream) == [("log", "token ***\n"), COUNTED]


def test_records_and_their_hints() -> None:
    assert logged(f'{{"a": "{TOKEN}", "b": 1}}\n') == [
        ("metadata", '{"a": "***", "b": 1}\n'),
        COUNTED,
    ]
    assert TOKEN not in str(logged(f"{{'a': '{TOKEN}', 'b': 1}}\n"))


def test_colours_may_stand_amid_a_secret() -> None:
    text = f"\x1b[1mbold\x1b[0m\n{TOKEN[:9]}\x1b[31m{TOKEN[9:]}\x1b[0m end\n"
    kept = logged(text, keep_colours=True)
    assert [text for _, text in kept] == ["\x1b[1mbold\x1b[0m\n*** end\n", COUNTED[1]]
    assert logged(text)[0] == ("log", "bold\n*** end\n")


def test_repeats() -> None:
    lines = logged(f"{TOKEN}\n" * 5)
    assert lines == [
        ("log", "***\n"),
        ("note", "[repeated 4 times: ***]\n"),
        ("event", "5 values masked: GitHub token"),
    ]


def test_user_events_and_malformed_commands() -> None:
    for line in (
        f'{{"event":"{TOKEN}"}}',
        f'{{"event": {{"name": "x", "t": "{TOKEN}"}}}}',
        f'{{"x": "{TOKEN}"}}',
    ):
        assert TOKEN not in str(logged(f"/LOGCOMMAND {line}\n"))


def test_a_bar_s_status_and_its_snapshots() -> None:
    classifier = Classifier("enabled", snapshot_secs=10.0)
    for second in range(0, 60, 5):
        classifier.feed(Stream.STDOUT, f"\r{second} {TOKEN} |".encode(), float(second))
        classifier.tick(float(second) + 1)
        assert TOKEN not in str(classifier.live())
    shown = entries(classifier)
    assert {kind for kind, _ in shown} == {"status", "note"}
    assert TOKEN not in str(shown)
    assert "*** |" in str(shown)


def test_parts_of_a_line_too_long_to_be_one() -> None:
    for shift in (0, 3, 20, 41, 60):
        head = "x " * ((4 << 19) - 30) + " " * shift
        shown = logged(f"{head}{TOKEN} end {'y ' * 3000}\n")
        assert len([kind for kind, _ in shown if kind == "log"]) > 1 or shift < 20
        text = "".join(text for kind, text in shown if kind == "log").replace("\n", "")
        assert TOKEN[4:30] not in text
        assert "***" in text


def test_modes() -> None:
    record = f'{{"a": "{TOKEN}"}}\n'
    assert logged(f"{TOKEN}\n{record}", "metadata") == [("metadata", '{"a": "***"}\n'), COUNTED]
    # no event counts a secret that mode `disabled` or `metadata` dropped
    assert logged(f"{TOKEN}\n", "metadata") == []
    assert logged(f"{TOKEN}\n{record}", "disabled") == []


def test_mask_off() -> None:
    assert logged(f"token {TOKEN}\n", mask=False) == [("log", f"token {TOKEN}\n")]


def test_one_event_a_minute() -> None:
    classifier = Classifier("enabled")
    times = []
    for second in range(0, 200, 5):
        classifier.feed(Stream.STDOUT, f"{second} {TOKEN}\n".encode(), float(second))
        classifier.tick(float(second))
        for item in classifier.take():
            if isinstance(item, LoggedEvent):
                assert item.record["event"] == "values_masked"
                assert item.record["shapes"] == {"GitHub token": item.record["values"]}
                times.append(second)
    assert len(times) > 2
    assert all(later - earlier >= MASKED_SECS for earlier, later in pairwise(times))
    due = classifier.next_tick()
    assert due is not None
    assert due >= times[-1] + MASKED_SECS


def test_several_shapes() -> None:
    text = f"{TOKEN}\nhttps://u:p@h\nhttps://u:q@h\n"
    assert logged(text)[-1] == (
        "event",
        "3 values masked: 2 credentials in an address, 1 GitHub token",
    )


def test_pairs_and_records_of_text() -> None:
    classifier = Classifier("enabled", metadata=("json", "dict", "pairs"))
    classifier.feed(Stream.STDOUT, f"loss=1 lr=2 {TOKEN}\nloss=1 lr=2\n".encode(), 0.0)
    classifier.end(Stream.STDOUT, 1.0)
    shown = entries(classifier)
    assert TOKEN not in str(shown)
    assert ("event", "1 value masked: GitHub token") in shown
    assert any(kind == Kind.METADATA.name.lower() for kind, _ in shown)
