"""The reader's own tags, notes and stars, next to a store: the last change counts, also with
several writers."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.errors import ConfigError, StoreError
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.store.local_store import LocalStore
from logshipper_ingest.store.marks_file import forget_marks
from logshipper_observe.model.overlay import (
    MAX_NOTE_CHARS,
    MAX_TAGS,
    NO_MARKS,
    MarkChange,
    Overlay,
    own_file,
    parse_change,
)
from tests.tools.sources import ROOT
from tests.tools.stores.reading_store import Ask, ask, training
from tests.tools.stress.model_settings import examples

JOB = JobKey("k3f9x2")
__all__ = ["ask"]  # fixtures


@pytest.fixture
def store(tmp_path: Path) -> Path:
    training(tmp_path / "store")
    return tmp_path / "store"


def ok(answer: tuple[int, str, str]) -> str:
    assert (answer[0], answer[2]) == (0, "")
    return answer[1]


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("+baseline", MarkChange("baseline", "")),
        ("baseline", MarkChange("baseline", "")),
        ("-baseline", MarkChange("baseline", None)),
        ("lr=0.1", MarkChange("lr", "0.1")),
        ("+lr=0.1", MarkChange("lr", "0.1")),
        ("url=http://a/?b=c", MarkChange("url", "http://a/?b=c")),
        ("what=two words", MarkChange("what", "two words")),
        ("empty=", MarkChange("empty", "")),
    ],
)
def test_changes_as_they_are_typed(word: str, change: MarkChange) -> None:
    assert parse_change(word) == change


@pytest.mark.parametrize(
    "word",
    ["", "+", "-", "=x", "-a=b", "a b", "a,b", "++a", "x" * 65, "a\x1b[31m", "a=\n", "\u202e"],
)
def test_what_is_no_tag_is_refused(word: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_change(word)
    assert "\x1b" not in str(error.value)


def test_the_last_word_counts(tmp_path: Path) -> None:
    overlay = Overlay(str(tmp_path / "overlay.db"))
    assert overlay.of(JOB) == NO_MARKS
    assert overlay.all() == {}
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"
    overlay.tag(
        JOB,
        [
            MarkChange("a", ""),
            MarkChange("lr", "1"),
            MarkChange("lr", "2"),
            MarkChange("a", None),
            MarkChange("b", ""),
        ],
    )
    overlay.annotate(JOB, "first")
    overlay.annotate(JOB, "second")
    overlay.star(JOB, True)
    marks = overlay.of(JOB)
    assert (dict(marks.tags), marks.note, marks.starred) == ({"b": "", "lr": "2"}, "second", True)
    assert marks.tag_words() == ["b", "lr=2"]
    assert overlay.all() == {JOB: marks}
    assert stat.S_IMODE(os.stat(tmp_path).st_mode) & 0o022 == 0
    overlay.tag(JOB, [MarkChange("b", None), MarkChange("lr", None)])
    overlay.annotate(JOB, "")
    assert overlay.star(JOB, False) == NO_MARKS
    assert overlay.all() == {}, "nothing is left of what was taken back"


def test_sources_are_apart(tmp_path: Path) -> None:
    """One file holds the marks of several clusters and of read-only stores."""
    path = str(tmp_path / "overlay.db")
    loki, other_store = Overlay(path), Overlay(path, source="store:/other")
    alpha, beta = JobKey("4711", "alpha"), JobKey("4711", "beta")
    loki.tag(alpha, [MarkChange("a", "")])
    loki.tag(beta, [MarkChange("b", "")])
    other_store.tag(JobKey("4711"), [MarkChange("c", "")])
    assert {place: set(marks.tags) for place, marks in loki.all().items()} == {
        alpha: {"a"},
        beta: {"b"},
    }
    assert {place: set(marks.tags) for place, marks in other_store.all().items()} == {
        JobKey("4711"): {"c"}
    }
    loki.tag(alpha, [MarkChange("a", None)])
    assert set(loki.all()) == {beta}


def test_caps(tmp_path: Path) -> None:
    overlay = Overlay(str(tmp_path / "overlay.db"))
    overlay.tag(JOB, [MarkChange(f"t{number}", "") for number in range(MAX_TAGS)])
    with pytest.raises(ConfigError, match="at most 64"):
        overlay.tag(JOB, [MarkChange("one-more", "")])
    assert len(overlay.of(JOB).tags) == MAX_TAGS
    with pytest.raises(ConfigError, match="16,384 characters; this one has 16,385"):
        overlay.annotate(JOB, "x" * (MAX_NOTE_CHARS + 1))


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "overlay.db"
    path.write_text("not a database, but long enough to be looked at as one" * 40)
    with pytest.raises(StoreError, match=r"overlay\.db"):
        Overlay(str(path)).of(JOB)
    messages: list[str] = []
    assert Overlay(str(path), tell=messages.append).all() == {}
    assert messages[0].endswith("jobs are shown without tags and notes")
    with pytest.raises(StoreError):
        Overlay(str(path), tell=messages.append).tag(JOB, [MarkChange("a", "")])
    path.unlink()
    Overlay(str(path)).tag(JOB, [MarkChange("a", "")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE mark SET tags = 'spoilt'")
    assert Overlay(str(path)).of(JOB).tags == {}


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from logshipper_observe.model.overlay import *\n"
        "overlay = Overlay(sys.argv[1])\n"
        "for n in range(15): overlay.tag(JobKey('k3f9x2'), [MarkChange(f'w{sys.argv[2]}-{n}', '')])"
    )
    path = str(tmp_path / "overlay.db")
    writers = [
        subprocess.Popen([sys.executable, "-c", code, path, str(n)], cwd=ROOT) for n in range(4)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    assert len(Overlay(path).of(JOB).tags) == 60


_NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20).filter(
    lambda name: not set(" ,=") & set(name) and name[0] not in "+-" and name.isprintable()
)


@given(
    st.lists(st.tuples(_NAMES, st.none() | st.sampled_from(["", "1", "x y", "=+-"])), max_size=12)
)
@settings(max_examples=examples(20), deadline=None)
def test_any_changes_end_as_their_last_words(changes: list[tuple[str, str | None]]) -> None:
    tags: dict[str, str] = {}
    for name, value in changes:
        tags.pop(name, None)
        if value is not None:
            tags[name] = value
    tag_changes = [
        parse_change(f"-{name}" if value is None else f"{name}={value}") for name, value in changes
    ]
    with tempfile.TemporaryDirectory() as folder:
        overlay = Overlay(os.path.join(folder, "overlay.db"))
        for change in tag_changes:
            overlay.tag(JOB, [change])
        assert dict(overlay.of(JOB).tags) == tags
        forget_marks(folder, JOB.job_id, wal=False)
        assert overlay.of(JOB) == NO_MARKS
        assert dict(overlay.tag(JOB, tag_changes).tags) == tags


# ---- commands


def test_tag_and_annotate_are_shown_everywhere(store: Path, ask: Ask) -> None:
    assert ok(ask("tag", "last", "+baseline", "lr=0.1", "+draft")).splitlines() == [
        "train.py  k3f9x2",
        "Tags     baseline, draft, lr=0.1",
        "Note     -",
        "Starred  no",
    ]
    ok(ask("tag", "last", "-draft"))
    ok(ask("annotate", "train.py", "lr too high\nsee the plot"))
    marks = json.loads(ok(ask("annotate", "k3f9x2", "--star", "--json")))
    assert (marks["schema"], marks["tags"]) == ("logshipper.marks/1", {"baseline": "", "lr": "0.1"})
    assert (marks["note"], marks["starred"]) == ("lr too high\nsee the plot", True)
    text = ok(ask("show", "last"))
    assert "Tags      baseline, lr=0.1\n" in text
    assert "Note      starred  lr too high / see the plot\n" in text
    for document in (
        json.loads(ok(ask("show", "last", "--json"))),
        json.loads(ok(ask("ls", "--json")))["jobs"][0],
    ):
        assert {name: document[name] for name in ("tags", "note", "starred")} == {
            "tags": {"baseline": "", "lr": "0.1"}, "note": "lr too high\nsee the plot", "starred": True
        }  # fmt: skip


def test_rm_drops_them(store: Path, ask: Ask) -> None:
    ok(ask("tag", "last", "+a"))
    ok(ask("rm", "last", "--yes"))
    training(store, attempt=2)
    assert json.loads(ok(ask("tag", "last", "--json")))["tags"] == {}, (
        "the job of the same id is another one"
    )


def test_bad_tags_change_nothing(store: Path, ask: Ask) -> None:
    code, out, err = ask("tag", "last", "+good", "bad,one")
    assert (code, out) == (2, "")
    assert "'bad,one': isn't a tag" in err
    assert not (store / "overlay.db").exists()
    assert ask("tag", "nobody", "+x")[0] == 1


def test_a_store_of_others_is_tagged_in_the_users_own_folder(
    store: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with LocalStore(str(store)) as local_store:
        local_store.ingest()
        local_store._catalogue.is_writable = False
        Overlay.of_local(local_store).tag(JOB, [MarkChange("mine", "")])
        assert set(Overlay.of_local(local_store).all()) == {JOB}
    assert not (store / "overlay.db").exists()
    assert (tmp_path / "data" / "logshipper-overlay" / "overlay.db").exists()
    assert own_file({"HOME": "/home/ada"}) == "/home/ada/.local/share/logshipper-overlay/overlay.db"
    assert own_file({}) == f"/var/tmp/logshipper-{os.getuid()}-overlay/overlay.db"


def test_spoilt_marks_hide_no_job(store: Path, ask: Ask) -> None:
    ok(ask("show", "last"))
    (store / "overlay.db").write_text("spoilt " * 1000)
    for words in (["ls"], ["show", "last"]):
        code, out, err = ask(*words)
        assert (code, "train.py" in out) == (0, True)
        assert "overlay.db" in err
        assert "without tags and notes" in err
    assert ask("tag", "last", "+a")[0] == 1
