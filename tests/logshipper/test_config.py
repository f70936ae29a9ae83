"""`~/.logoptin`: its options, and the refusal of malformed files (R6, R7, R12, R13)."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper import config, optin
from logshipper.config import Config, MetadataPattern, Notify
from logshipper.errors import ConfigError
from logshipper.metadata_pattern import compiled, problem_of
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"  \n\t\n",
        b"# off\n",
        b"---\n",
        b"---",
        b"{}",
        b"{}\n",
        b"# a\r\n---\r\n{}\r\n# b",
        b"--- {}\n",
    ],
)
def test_nothing_said_means_enabled(content: bytes) -> None:
    """R13: an empty file enables capture; so do blanks, comments, `---` and `{}`."""
    assert config.parse(content, "f") == Config("enabled", True, True)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"mode: enabled", Config("enabled")),
        (b"mode: metadata\n", Config("metadata")),
        (b'{"mode": "disabled"}', Config("disabled")),
        (b"mode: 'disabled' # quiet", Config("disabled")),
        (b"commands: off\n", Config(commands=False)),
        (b"tty: false\nmode: metadata\n", Config("metadata", tty=False)),
        (b"\xef\xbb\xbfmode: metadata\n", Config("metadata")),
        (b"colors: keep\n", Config(colors="keep")),
        (b"colors: strip\nsnapshots: off\n", Config()),
        (b"snapshots: 10s\n", Config(snapshots=10.0)),
        (b"snapshots: 1.5m\n", Config(snapshots=90.0)),
        (b"snapshots: '24h'\n", Config(snapshots=86400.0)),
        (b"metadata: [json]\n", Config(metadata=("json",))),
        (b"ignore: ['tokens/s', time*]\n", Config(ignore=("tokens/s", "time*"))),
        (b"rename: {'lm loss': loss}\n", Config(rename=(("lm loss", "loss"),))),
        (b"ignore: []\nrename: {}\n", Config()),
        (b"notify: desktop\n", Config(notify=Notify(("desktop",)))),
        (
            b"notify: ['cmd:mail -s x me', file:~/.notify, 'env:HOOK', ntfys://topic]\n",
            Config(
                notify=Notify(("cmd:mail -s x me", "file:~/.notify", "env:HOOK", "ntfys://topic"))
            ),
        ),
        (
            b"notify:\n  to: [desktop]\n  on: [failure, nan]\n  silence: 1h\n",
            Config(notify=Notify(("desktop",), ("failure", "nan"), 3600.0)),
        ),
        (b"notify: {to: desktop, on: end}\n", Config(notify=Notify(("desktop",), ("end",)))),
        (b"metadata: [json, dict, pairs]\n", Config(metadata=("json", "dict", "pairs"))),
        (
            rb"metadata: [json, {pattern: 'loss is (?P<loss>[0-9.]+)'}]",
            Config(metadata=("json", MetadataPattern("pattern1", "loss is (?P<loss>[0-9.]+)"))),
        ),
        (
            rb"metadata: [json, {pattern: '(?P<a>\d+(?:\.\d+)?)', name: mine}, {pattern: '(?P<b>[[5]+)'}]",
            Config(
                metadata=(
                    "json",
                    MetadataPattern("mine", r"(?P<a>\d+(?:\.\d+)?)"),
                    MetadataPattern("pattern2", "(?P<b>[[5]+)"),
                )
            ),
        ),
    ],
)
def test_options(content: bytes, options: Config) -> None:
    """R6, R7, R12."""
    assert config.parse(content, "f") == options


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"notify: []\n", "notify: 0 targets; from 1 to 8 are possible"),
        (b"notify: [desktop, s3cret]\n", "notify: target 2 is wrong; a target is `desktop`, "),
        (b"notify: {on: end}\n", "notify: write `notify: {to: TARGET, "),
        (b"notify: {to: desktop, on: [ends]}\n", "notify: `on` is a list of `end`, `failure`, "),
        (b"notify: {to: desktop, silence: off}\n", "notify: `silence: off` is no span"),
        (b"notify: {to: desktop, silence: 1s}\n", "silence: `1s` is too short"),
        (b"mode: off\n", "YAML reads `mode: off` as `false`; write `mode: disabled`"),
        (b"mode: on\n", "write `mode: enabled`"),
        (b"- mode\n", "this is a list"),
        (b"enabled", "plain text"),
        (b"42", "a single value"),
        (b"mode: metdata", "did you mean `metadata`"),
        (b"mode: [enabled]", "is no mode"),
        (b"mod: enabled", "unknown key `mod` (did you mean `mode`?)"),
        (b"tty: maybe", "`maybe` is neither `on` nor `off`"),
        (b"colors: yes", "colors: `True` is neither `keep` nor `strip`"),
        (b"colors: kept", "(did you mean `keep`?)"),
        (b"colours: keep", "unknown key `colours` (did you mean `colors`?)"),
        (
            b"snapshots: 30",
            "`30` is no span of time: a number with s, m or h is; write `snapshots: 30s`, or `off`",
        ),
        (b"snapshots: 30 s", "`30 s` is no span of time"),
        (b"snapshots: 1:30", "`90` is no span of time"),
        (b"snapshots: on", "`True` doesn't say how often; write `snapshots: 30s`"),
        (b"snapshots: 9.9s", "`9.9s` is too short; from `10s` to `24h`"),
        (b"snapshots: 0s", "too short"),
        (b"snapshots: 25h", "`25h` is too long; from `10s` to `24h`"),
        (b"snapshots: [30s]", "is no span of time"),
        (
            b"metadata: pairs",
            "is no list with `json` in it; write `metadata: [json, dict, pairs, auto]`",
        ),
        (b"metadata: [pairs]", "is no list with `json` in it"),
        (b"metadata: on", "`True` is no list"),
        (b"metadata: [json, pair]", "`pair` is no kind of metadata (did you mean `pairs`?)"),
        (b"metadata: [json, [dict]]", "is no kind of metadata"),
        (b"metadata: [json, dict, dict]", "`dict` stands twice"),
        (b"metadata: [json, {patern: x}]", "is no pattern; write `{pattern: "),
        (b"metadata: [json, {pattern: 5}]", "is no pattern"),
        (b"metadata: [json, {pattern: '(?P<a>5)', flags: i}]", "is no pattern"),
        (b"metadata: [json, {pattern: '(?P<a>5)', name: A}]", "`A` is no name for a pattern"),
        (b"metadata: [json, {pattern: '(?P<a>5)', name: pairs}]", "is no name for a pattern"),
        (b"metadata: [json, {pattern: '[0-9]+'}]", "names no group: write `(?P<loss>[0-9.]+)`"),
        (b"metadata: [json, {pattern: '(?P<a>5'}]", "is no regular expression: missing )"),
        (b"metadata: [json, {pattern: '(?P<a>5{9999999999})'}]", "is no regular expression"),
        (b"metadata: [json" + b", {pattern: '(?P<a>5)'}" * 9 + b"]", "9 patterns; 8 is the limit"),
        (b"metadata: [json, {pattern: '(?P<a>5)" + b"x" * 300 + b"'}]", "is over 300 characters"),
        (b"ignore: time\n", "`time` is no list; write `ignore: ['tokens/s', 'time*']`"),
        (b"ignore: [tokens/s, 5]", "`5` is no key: write 1 to 128 printable characters in quotes"),
        (b"ignore: ['']", "is no key"),
        (b'ignore: ["\\ud800"]', "is no key"),
        (b"ignore: [" + b"a" * 129 + b"]", "is no key"),
        (b"ignore: [" + b"a," * 101 + b"]", "101 keys; 100 is the limit"),
        (b"ignore: [*time]", "line 1: aliases (`*name`) aren't taken; write wildcards in quotes"),
        (b"ignore: [*]", "; write wildcards in quotes: '*time'"),
        (b"rename: [loss]\n", "has no new names; write `rename: {'lm loss': loss}`"),
        (b"rename: {lm loss: 5}\n", "`5` is no key"),
        (b"rename: {on: loss}\n", "`True` is no key"),
        (b"a: &x [1]\nmode: *x\n", "line 2: aliases"),
        (b"mode: enabled\nmode: disabled\n", "line 2: `mode` stands twice"),
        (b"mode: {a: b", "line 1"),
        (b"mode:\tenabled", "line 1"),
        (b"\xff\xfe\x00", "isn't UTF-8 text (byte 0)"),
        (b"mode: enabled\n\x00", "isn't YAML"),
        (b"[" * 30_000, "isn't YAML"),
        (b"mode: !!python/object:os.system x", "line 1"),
        (b"mode: 2001-99-99", "isn't YAML"),
        (b"{}\n{}\n", "line 2"),
        (b"? [a, b]\n: c\n", "isn't YAML"),
    ],
)
def test_malformed_is_refused_with_the_fix(content: bytes, reason: str) -> None:
    """R13: a malformed file fails closed, and the error explains the fix in plain words."""
    with pytest.raises(ConfigError) as error:
        config.parse(content, "/home/x/.logoptin")
    assert reason in str(error.value)
    assert str(error.value).startswith("/home/x/.logoptin: ")
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "pattern",
    [
        "(?P<a>(?:a+)+)",
        "(?P<a>(?:a*)*)",
        "(?P<a>(?:a?){30})",
        "(?P<a>(?:a|a)*)",
        "(?P<a>(?:a|ab)+)",
        "(?P<a>(?:(?:a+)?)+)",
        "(?P<a>(?:a{1,9}){9})",
        "(?P<a>(?:a+?)+?)",
        "(?P<a>(?:(?:a+){1}){2,})",
    ],
)
def test_patterns_that_repeat_what_is_repeated_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="repeats what is itself repeated"):
        config.parse(f"metadata: [json, {{pattern: '{pattern}'}}]".encode(), "f")


@pytest.mark.parametrize(
    "pattern",
    [
        "(?P<a>5)(?=x)",
        "(?!x)(?P<a>5)",
        "(?<=x)(?P<a>5)",
        r"(?P<a>5)\1",
        "(?P<a>5)(?P=a)",
        "(?P<a>5)?(?(a)x|y)",
        "(?P<a>5++)",
        "(?P<a>5)++",
        "(?>x)(?P<a>5)",
    ],
)
def test_patterns_with_more_than_a_plain_syntax_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="uses what isn't taken"):
        config.parse(f"metadata: [json, {{pattern: '{pattern}'}}]".encode(), "f")


def test_a_pattern_with_too_many_choices_is_refused() -> None:
    """Each option can double the number of attempts to match."""
    with pytest.raises(ConfigError, match="has 30 repeats, options and alternatives; 20"):
        config.parse(b"metadata: [json, {pattern: '(?P<a>" + b"a?" * 30 + b")'}]", "f")


@given(st.text("ab(?P<x>)+*{1,2}|[]^$.\\", max_size=30))
def test_any_pattern_is_taken_or_refused(pattern: str) -> None:
    """An accepted pattern compiles and names a group."""
    if not problem_of(pattern):
        assert compiled(pattern).groupindex


def test_all_problems_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        config.parse(b"mode: x\ncolour: y\ntty: z\n", "f")
    assert len(error.value.problems) == 3


def test_alias_bomb_costs_nothing() -> None:
    """R13: ten levels of ten aliases would expand to 10^10 nodes."""
    bomb = b"a0: &a0 [x]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (level, level, b",".join([b"*a%d" % (level - 1)] * 10))
        for level in range(1, 11)
    )
    with pytest.raises(ConfigError, match="aliases"):
        config.parse(bomb, "f")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        mode = config.parse(content, "f").mode
    except ConfigError:
        return
    assert mode in config.MODES


# ---- looking at the file


def test_absent(tmp_path: Path) -> None:
    """R1, R2: without a file, the user has not opted in."""
    assert optin.look(str(tmp_path / ".logoptin")) == (optin.ABSENT, b"")
    assert optin.look(str(tmp_path / "no" / "such" / ".logoptin")) == (optin.ABSENT, b"")


def test_present(tmp_path: Path) -> None:
    """R2, R6."""
    file = tmp_path / ".logoptin"
    file.touch()
    assert optin.look(str(file)) == (optin.PRESENT, b"")
    file.write_bytes(b"x" * optin.MAX_BYTES)
    assert optin.look(str(file)) == (optin.PRESENT, b"x" * optin.MAX_BYTES)
    (tmp_path / "link").symlink_to(file)
    assert optin.look(str(tmp_path / "link"))[0] == optin.PRESENT


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """R13: refuse over 64 KiB, a folder, a FIFO, a device, and a dangling or looping link."""
    big = tmp_path / "big"
    big.write_bytes(b"#" * (optin.MAX_BYTES + 1))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, words in (
        ("big", b"is over 64 KiB"),
        (".", b"is a folder"),
        ("fifo", b"is a FIFO"),
        ("dangling", b"leads nowhere"),
        ("loop", b"leads nowhere"),
    ):
        state, reason = optin.look(str(tmp_path / name))
        assert (state, words in reason) == (optin.REFUSED, True), (name, reason)
    assert optin.look("/dev/null")[0] == optin.REFUSED


@pytest.mark.skipif(os.getuid() == 0, reason="root may read anything; runs as an ordinary user")
def test_unreadable_is_refused(tmp_path: Path) -> None:
    """R13: refuse a file without read permission. A home without search permission holds no
    file."""
    file = tmp_path / ".logoptin"
    file.touch()
    file.chmod(0)
    assert optin.look(str(file))[0] == optin.REFUSED
    file.chmod(stat.S_IRUSR)
    tmp_path.chmod(0)
    try:
        assert optin.look(str(file))[0] == optin.ABSENT
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_a_home_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: the state is unknown after the time-out, and the caller waits no longer."""
    fifo = tmp_path / "never"
    os.mkfifo(fifo)

    def hang(file: str) -> tuple[str, bytes]:
        os.open(fifo, os.O_RDONLY)  # blocks for ever, without a writer
        return optin.PRESENT, b""

    monkeypatch.setattr(optin, "read", hang)
    begin = time.monotonic()
    assert optin.look("~/.logoptin", timeout_secs=0.2) == (optin.UNKNOWN, b"")
    assert time.monotonic() - begin < scaled(5)
    os.close(os.open(fifo, os.O_WRONLY))  # lets the hanging process end


def test_a_busy_machine_is_no_home_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child process is runnable all the time, so it gets BUSY_SECS instead of the time-out."""

    def want_a_processor(file: str) -> tuple[str, bytes]:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            pass
        return optin.PRESENT, b"x"

    monkeypatch.setattr(optin, "read", want_a_processor)
    assert optin.look("~/.logoptin", timeout_secs=0.2) == (optin.PRESENT, b"x")
    monkeypatch.setattr(optin, "BUSY_SECS", 0.5)
    assert optin.look("~/.logoptin", timeout_secs=0.2) == (optin.UNKNOWN, b"")


def test_the_look_leaves_no_child_behind(tmp_path: Path) -> None:
    """A job that is exec'ed after the look and loops on `wait()` must find no child."""
    program = "import os, sys; from logshipper import optin; optin.look(sys.argv[1]); os.wait()"
    command = [sys.executable, "-c", program, str(tmp_path / "x")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=scaled(30))
    assert "ChildProcessError" in done.stderr


def test_the_look_imports_nothing_heavy() -> None:
    """`--if-opted-in` runs before every job of a cluster."""
    listing = "print(*sys.modules)"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import logshipper.__main__, logshipper.optin; {listing}"
    assert _modules(code) - _modules(f"import sys; {listing}") <= {
        "logshipper",
        "logshipper.__main__",
        "logshipper.coerced_locale",
        "logshipper.search_path",
        "logshipper.optin",
        "select",
        "gc",  # built in
    }


def _modules(code: str) -> set[str]:
    return set(
        subprocess.run(
            [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
