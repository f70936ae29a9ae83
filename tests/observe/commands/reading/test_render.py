"""`logshipper render`: the same lines as `logshipper run` logs, the last screen, pipes, live input,
and bad input."""

import array
import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.render.last_screen import LastScreen
from logshipper.start.cli import main
from tests.tools.captures.captured_runs import TIMEOUT_SECS, Home, wait_until
from tests.tools.captures.terminal_oracle import Tmux, run_python, tmux
from tests.tools.sources import ROOT
from tests.tools.stress.model_settings import examples

__all__ = ["tmux"]  # a fixture

XTERM = ROOT.parent / "shared" / "conformance" / "xterm"
# tests/logshipper/render/test_screen.py gives the reasons
XTERM_DIFFERS = ("t0055-EL", "t0084-CBT", "t0101-NLM", "t0103-reverse_wrap")
MANY_BYTES = 32 << 20
MEMORY_KIB = 40_000  # Python and its imports use 18 MB

Render = Callable[..., tuple[int, bytes, str]]

SAMPLES = {
    "empty": b"",
    "LF": b"one\n\n\ntwo  \ntwo\ntwo\n   \nthree",
    "CRLF": b"one\r\n\r\n\r\ntwo  \r\ntwo\r\ntwo\r\n   \r\nthree",
    "bars": b"begin\n"
    + b"".join(b"\r%3d%%|%-20s|" % (5 * n, b"#" * n) for n in range(21))
    + b"\nend\n",
    "two bars": b"".join(b"\router %d\n\r  inner %d\x1b[K\x1b[A" % (n, n * n) for n in range(30))
    + b"\n\n",
    "colours, titles, tabs": b"\x1b]0;t\x07\x1b[1;31merror\x1b[0m\x1b[K a\tb\r\n\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n",
    "wide, joined, invalid": "日本語 ⚠\ufe0f é 👩\u200d💻\n".encode()
    + b"\xff\xe6\x97 a\x80\n"
    + "\x85x\n".encode(),
    "scrolled, cleared": b"".join(b"line %d\n" % n for n in range(70))
    + b"\x1b[5A\rup\n\x1b[2J\x1b[Hnew\n",
    "full screen": b"before\n\x1b[?1049h\x1b[Hin\nit\x1b[?1049lafter\n",
    "metadata": b'{"epoch": 1}\n{"epoch": 1}\n {"epoch": 1}\n{"loss": NaN}\n{"loss": NaN}\n\r{"a": 1} \r\n{"b": []}',
    "metadata only": b'a\n/LOGCOMMAND {"mode":"metadata"}\nb\n{"a":1}\n/LOGCOMMAND {"mode":"enabled"}\nc\nc\n',
    "switched off": b'a\nhalf\r/LOGCOMMAND {"mode":"disabled"}\r\nb\n\n/LOGCOMMAND {"mode":"enabled"}\nc',
    "off at the end": b'a\n/LOGCOMMAND {"mode":"disabled"}\nb\n\n{"a": 1}\nc',
    "fenced": b'/LOGCOMMAND {"stop":"tokentoken"}\n/LOGCOMMAND {"mode":"disabled"}\ntokentoken\n'
    b'/LOGCOMMAND {"resume":"tokentoken"}\n/LOGCOMMAND  {"mode":"enabled"}\nx\n',
    "long lines": b"a\n" + b"b" * (5 << 20) + b"\nd\n" + b"e" * (4 << 20) + b"\n",
    "long line cut off": b"f" * (5 << 20) + b'\r/LOGCOMMAND {"mode":"disabled"}\ng\n',
    "random": random.Random(1).randbytes(4000),
    "random text": bytes(
        random.Random(2).choices(b"ab \n\r\b\t\x1b[0123;ABCDHJKLMPSTX?hlm", k=4000)
    ),
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def render(capfdbinary: pytest.CaptureFixture[bytes]) -> Render:
    """Return a function that calls the command in this process; it returns exit code, stdout and
    stderr."""

    def call(*words: object) -> tuple[int, bytes, str]:
        try:
            code = main(["render", *map(str, words)])
        except SystemExit as error:
            code = int(error.code or 0)
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return call


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "typescript"
        path.write_bytes(data)
        return path

    return write


def ok(answer: tuple[int, bytes, str]) -> bytes:
    code, out, err = answer
    assert (code, err) == (0, "")
    return out


# ---- as `run` logs it


def _typescript(folder: Path) -> bytes:
    if shutil.which("script") is None:
        pytest.skip("script isn't installed")
    file = folder / "typescript"
    code = "printf 'one\\ntwo\\n'; for n in 1 2 3; do printf \"\\r$n of 3\"; done; echo; ls --color=always /"
    subprocess.run(
        ["script", "-c", code, str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return file.read_bytes()


def _tqdm(_: Path) -> bytes:
    pytest.importorskip("tqdm")
    return b"".join(
        data for data, _ in run_python("from tqdm import tqdm\nfor i in tqdm(range(30)): print(i)")
    )


REAL = {"a typescript of script(1)": _typescript, "tqdm": _tqdm}


@pytest.mark.parametrize("name", [*SAMPLES, *REAL])
def test_prints_what_run_logs(
    name: str, home: Home, render: Render, file: Callable[[bytes], Path]
) -> None:
    data = SAMPLES[name] if name in SAMPLES else REAL[name](home.folder)
    path = file(data)
    logs_by_kind = {}
    for kind, options in {"pty": (), "pipe": ("--no-tty",)}.items():
        process = home.run("cat", str(path), options=[*options, "--name", kind])
        assert (process.returncode, process.stdout) == (0, data)
        logs = home.call("logs", kind)
        assert (logs.returncode, logs.stderr) == (0, b"")
        logs_by_kind[kind] = logs.stdout
    assert logs_by_kind["pty"] == logs_by_kind["pipe"]
    for kind in ("pty", "pipe"):
        assert ok(render("--stream-type", kind, path)) == logs_by_kind[kind]


def test_a_typescript_keeps_the_lines_of_script(
    render: Render, file: Callable[[bytes], Path], tmp_path: Path
) -> None:
    lines = ok(render(file(_typescript(tmp_path)))).decode().splitlines()
    assert lines[0].startswith("Script started on ")
    assert lines[-1].startswith("Script done on ")
    assert lines[1:4] == ["one", "two", "3 of 3"]


def test_line_ends_of_a_redirect_and_of_a_terminal_are_alike(
    render: Render, file: Callable[[bytes], Path]
) -> None:
    text = b"one\n  two\n\r10%\r20%\n\x1b[Adone\nend\n"
    assert (
        ok(render(file(text)))
        == ok(render(file(text.replace(b"\n", b"\r\n"))))
        == b"one\n  two\ndone\nend\n"
    )


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ([], b"0123456789\nX\n"),
        (["--columns", "10", "--rows", "9"], b"X123456789\n"),
        (["--rows", "1"], b"0123456789\nX\n"),
    ],
)
def test_size_of_the_terminal(
    render: Render, file: Callable[[bytes], Path], options: list[str], output: bytes
) -> None:
    """CR returns to the start of a row. With ten columns this is the first row, because the second
    one has not begun."""
    data = b"0123456789" if len(options) == 4 else b"0123456789\n"
    assert ok(render(*options, file(data + b"\rX"))) == output


def test_no_collapse(render: Render, file: Callable[[bytes], Path]) -> None:
    path = file(b'a\na\na \n\n\n  \nb\nb\n{"a": 1}\n\n\n{"a": 1}\n\n\nc')
    assert (
        ok(render("--no-collapse", path)) == b'a\na\na\n\n\n\nb\nb\n{"a": 1}\n\n\n{"a": 1}\n\n\nc\n'
    )
    assert ok(render(path)).count(b"[repeated 2 times: a]") == 1


@pytest.mark.parametrize("more", [(), ("--no-collapse",)])
def test_colours_are_kept_where_asked_for(
    more: tuple[str, ...], render: Render, file: Callable[[bytes], Path]
) -> None:
    path = file(
        b'\x1b[31mred\x1b[0m\n\x1b[31mred \x1b[0m\nplain\x1b[?25l\n\x1b[1m{"a": 1}\x1b[m\n10%\r\x1b[32m20%\x1b[0m\n'
    )
    lines = ok(render("--colors", "keep", *more, path)).splitlines()
    assert lines[0] == b"\x1b[31mred\x1b[0m"
    assert lines[-3:] == [b"plain", b'{"a": 1}', b"\x1b[32m20%\x1b[0m"]
    assert b"\x1b" not in ok(render(*more, path))


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.sampled_from([b"", b" ", b"a", b"a ", b"b", b'{"a": 1}', b"\x1b[Kc"]), max_size=30),
    st.integers(1, 99),
)
def test_no_collapse_keeps_every_line(lines: list[bytes], size: int) -> None:
    from logshipper.classify.classifier import Classifier
    from logshipper.classify.logged import LoggedLines
    from logshipper.spool.segment import Stream

    data = b"".join(line + b"\n" for line in lines)
    classifier = Classifier("enabled", collapse=False)
    for at in range(0, len(data), size):
        classifier.feed(Stream.STDOUT, data[at : at + size], 0.0)
    classifier.end(Stream.STDOUT, 0.0)
    text = b"".join(item.text for item in classifier.take() if isinstance(item, LoggedLines))
    assert text == b"".join(line.removeprefix(b"\x1b[K").rstrip(b" ") + b"\n" for line in lines)
    account = classifier.ledger()["stdout"]
    assert account["read"] == account["stored"] == len(lines)


# ---- the last screen


SCREENS = {
    **{
        name: SAMPLES[name]
        for name in (
            "LF",
            "CRLF",
            "bars",
            "two bars",
            "colours, titles, tabs",
            "metadata",
            "fenced",
        )
    },
    "scrolled": b"".join(b"line %d of many\n" % n for n in range(300)) + b"\x1b[3A\rup",
    "cleared": SAMPLES["scrolled, cleared"],
    "wrapped": b"word " * 80 + b"\n" + b"x" * 200,
    "left full screen": SAMPLES["full screen"],
    "in full screen": b"before\n\x1b[?1049h\x1b[2;3Hin\nit",
    "region": b"\x1b[2;4r\x1b[4;1Ha\nb\nc\nd\x1b[r\x1b[5;1Hend",
}


@pytest.mark.parametrize("size", ["80x25", "20x5"])
@pytest.mark.parametrize("name", SCREENS)
def test_screen_as_tmux_shows_it(
    name: str, size: str, tmux: Tmux, render: Render, file: Callable[[bytes], Path]
) -> None:
    columns, rows = map(int, size.split("x"))
    screen_lines = ok(render("--screen", size, file(SCREENS[name]))).decode().splitlines()
    assert screen_lines == tmux.screen(SCREENS[name], columns, rows)


def test_screen_of_xterm_s_cases(render: Render) -> None:
    files = sorted(XTERM.glob("*.in"))
    if not files:
        pytest.skip("xterm's cases aren't in ../shared/conformance")
    for path in files:
        if path.stem in XTERM_DIFFERS:
            continue
        expected_lines = [
            line.rstrip() for line in path.with_suffix(".text").read_text().split("\n")[:25]
        ]
        while expected_lines and not expected_lines[-1]:
            expected_lines.pop()
        screen_lines = [
            line.rstrip()
            for line in ok(render("--screen", "80x25", path)).decode().split("\n")[:-1]
        ]
        assert screen_lines == expected_lines, path.stem


class _SlowScreen(LastScreen):
    def _behind_plain(self, piece: bytes) -> int:
        return 0


_TEXTS = st.sampled_from(
    [b"ab\n", b"\n", b"abcdefghi\r\n", "日é\n".encode(), b"\x1b[1ma\x1b[m\t\n"]
)
_LINES = st.builds(lambda line, times: line * times, _TEXTS, st.integers(0, 30))
_CONTROLS = st.sampled_from(
    [b"\x1b[A", b"\x1b[2;2Hx", b"\x1b[2J", b"\x1b[2;3r", b"\x1b[r", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b7", b"\x1b8",
     b"\x1b[4h", b"\x1b[4l", b"\x1b]0;", b"\x07", b"\x1b[", b"m", b"\xe6", b"half", b"\r", b"\b", b"\x1b#8", b"\x1b(0"]
)  # fmt: skip


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(st.one_of(_LINES, _CONTROLS), max_size=6).map(b"".join), max_size=6))
def test_what_is_left_out_isn_t_on_the_screen(pieces: list[bytes]) -> None:
    quick, slow = LastScreen(7, 4), _SlowScreen(7, 4)
    for piece in pieces:
        quick.feed(piece)
        slow.feed(piece)
    assert quick.rows() == slow.rows()


def test_plain_lines_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text_lengths: list[int] = []
    draw = LastScreen._draw

    def count(self: LastScreen, text: str) -> None:
        text_lengths.append(len(text))
        draw(self, text)

    monkeypatch.setattr(LastScreen, "_draw", count)
    screen = LastScreen(80, 25)
    screen.feed(b"".join(b"line %d\r\n" % n for n in range(100_000)))
    assert sum(text_lengths) < 10_000
    assert screen.rows() == [f"line {n}" for n in range(99_976, 100_000)]


# ---- hostile input


def _start(
    home: Home, *words: str, **options: Any
) -> "subprocess.Popen[bytes]":  # Any: options of Popen
    return home.start("render", *words, stdin=subprocess.PIPE, bufsize=0, **options)


def _send(run: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert run.stdin is not None
    run.stdin.write(data)


def _has_read_all(run: "subprocess.Popen[bytes]") -> bool:
    """Return whether the pipe is empty, and the process sleeps again."""
    assert run.stdin is not None
    pipe_bytes = array.array("i", [0])
    fcntl.ioctl(run.stdin, termios.FIONREAD, pipe_bytes)
    state = Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return pipe_bytes[0] == 0 and state == "S"


HOSTILE = {
    "NULs": b"\0" * (1 << 20),
    "endless OSC": b"\x1b]0;" + b"x" * (8 << 20),
    "endless CSI": b"\x1b[" + b"1;" * (2 << 20),
    "endless DCS with lines": b"\x1bP" + b"x\n" * (1 << 20),
    "endless row drawn over": b"\r" + b"abc\r" * (1 << 20),
    "joined characters": b"e" + "\u0301".encode() * (1 << 17),
    "JSON": b'{"a":' * 100_000 + b"\n",
    "fills and clears": b"\x1b#8\x1b[2J" * 3_000,
    "random": random.Random(3).randbytes(1 << 18),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("options", [[], ["--screen", "80x25"]], ids=["lines", "screen"])
def test_hostile_input(
    name: str, options: list[str], render: Render, file: Callable[[bytes], Path]
) -> None:
    out = ok(render(*options, file(HOSTILE[name] + b"\n\x1bc\nlast")))
    assert out.endswith(b"last\n")
    assert not set(out) & {*range(0x0A), *range(0x0B, 0x20), 0x7F}
    out.decode()


@pytest.mark.parametrize("options", [[], ["--screen", "80x25"]], ids=["log", "screen"])
@pytest.mark.parametrize(
    "piece",
    [b"x", b"a line\n", b"\x1b]0;" + b"x" * 4000 + b"\x07", b"\rbar "],
    ids=["line", "lines", "OSC", "bar"],
)
def test_memory_is_constant(home: Home, options: list[str], piece: bytes, tmp_path: Path) -> None:
    """An endless line, many lines, endless titles, an endless bar, each in a pipe."""
    out = tmp_path / "out"
    with out.open("wb") as stdout, _start(home, *options, stdout=stdout) as run:
        chunk = piece * ((1 << 20) // len(piece))
        for _ in range(MANY_BYTES // len(chunk)):
            _send(run, chunk)
        wait_until(lambda: _has_read_all(run), "all is read")
        (peak,) = re.findall(
            r"^VmHWM:\s+([0-9]+) kB$", Path(f"/proc/{run.pid}/status").read_text(), re.MULTILINE
        )
        _, err = run.communicate(timeout=TIMEOUT_SECS)
    assert (run.returncode, err) == (0, b"")
    assert int(peak) < MEMORY_KIB
    if piece == b"x" and not options:
        assert out.stat().st_size == MANY_BYTES + 1


# ---- live


def _line(run: "subprocess.Popen[bytes]") -> bytes:
    assert run.stdout is not None
    return run.stdout.readline()


def test_lines_of_a_pipe_come_at_once(home: Home) -> None:
    with _start(home) as run:
        _send(run, b"one\r\ntwo")
        assert _line(run) == b"one\n"
        _send(run, b" more\n\r10%\r20%")
        assert _line(run) == b"two more\n"
        _send(run, b"\n\x1b[?25lheld while it may be drawn again\n")
        assert _line(run) == b"20%\n"
        # a second after its last change
        assert _line(run) == b"held while it may be drawn again\n"
        out, err = run.communicate(b"half", timeout=TIMEOUT_SECS)
    assert (run.returncode, out, err) == (0, b"half\n", b"")


def test_repeats_of_a_pipe_are_counted(home: Home) -> None:
    with _start(home, "-") as run:
        _send(run, b"a\n" * 5)
        out, err = run.communicate(b"a\nb\n", timeout=TIMEOUT_SECS)
    assert (run.returncode, out, err) == (0, b"a\n[repeated 5 times: a]\nb\n", b"")


@pytest.mark.parametrize(
    ("options", "output"), [([], b"half\n"), (["--screen", "80x25"], b"one\nhalf\n")]
)
def test_ctrl_c_ends_it_with_what_was_held(home: Home, options: list[str], output: bytes) -> None:
    with _start(home, *options) as run:
        _send(run, b"one\n")
        if not options:
            assert _line(run) == b"one\n"
        _send(run, b"half")
        wait_until(lambda: _has_read_all(run), "all is read")
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=TIMEOUT_SECS)
    assert (run.returncode, out, err) == (130, output, b"")


def test_a_reader_that_is_gone_ends_it(home: Home, file: Callable[[bytes], Path]) -> None:
    path = file(b"".join(b"line %d\n" % n for n in range(100_000)))
    with home.start("render", str(path)) as run:
        assert _line(run) == b"line 0\n"
        assert run.stdout is not None
        run.stdout.close()
        assert run.stderr is not None
        assert (run.stderr.read(), run.wait(TIMEOUT_SECS)) == (b"", 141)


def test_a_reader_that_is_gone_ends_a_wait(home: Home) -> None:
    with _start(home) as run:
        _send(run, b"one\n")
        assert _line(run) == b"one\n"
        assert run.stdout is not None
        run.stdout.close()
        assert run.stderr is not None
        assert (run.stderr.read(), run.wait(TIMEOUT_SECS)) == (b"", 141)


def test_standard_input_may_be_a_file(home: Home, file: Callable[[bytes], Path]) -> None:
    with file(b"a\n\rb\rc").open("rb") as input_file:
        process = home.call("render", stdin=input_file)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"a\nc\n", b"")


# ---- on a terminal


def _terminal_output(home: Home, command: str) -> str:
    """Return everything that a command in a shell shows on a terminal."""
    environment = {**home.environment, "TERM": "xterm-256color", "PYTHONUTF8": "1"}
    child = pexpect.spawn(
        "sh",
        ["-c", command],
        env=environment,
        cwd=str(home.folder),
        timeout=TIMEOUT_SECS,
        encoding="utf-8",
    )
    output = str(child.read())
    child.close()
    assert child.exitstatus == 0, output
    return output


def test_notes_are_dimmed_on_a_terminal(home: Home, file: Callable[[bytes], Path]) -> None:
    path = file('é\né\né\n/LOGCOMMAND {"stop":"x"}\n'.encode())
    assert _terminal_output(home, f"{sys.executable} -m logshipper render {path}") == (
        'é\r\n\x1b[2m[repeated 2 times: é]\x1b[0m\r\n\x1b[2m/LOGCOMMAND {"stop":"***"}\x1b[0m\r\n'
    )


def test_the_keyboard_is_read_until_ctrl_d(home: Home) -> None:
    environment = {**home.environment, "TERM": "xterm-256color"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "logshipper", "render"],
        env=environment,
        timeout=TIMEOUT_SECS,
        echo=False,
    )
    child.delaybeforesend = None
    child.expect_exact(b"logshipper: reading from the terminal; Ctrl-D ends it\r\n")
    child.send(b"a line\n")
    child.expect_exact(b"a line\r\n")
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.parametrize("options", [[], ["--screen", "80x25"]], ids=["lines", "screen"])
def test_bar_where_a_file_is_big(
    options: list[str], home: Home, file: Callable[[bytes], Path]
) -> None:
    """The bar does not appear if lines come on the same terminal meanwhile."""
    path = file(b"a line\n" * 700_000)
    call = home.folder / "call.py"  # without the bar's delay of half a second
    call.write_text(
        "import sys\nfrom logshipper.start.cli import main\nfrom logshipper_ingest.console import progress_bar\n"
        f"progress_bar._PATIENCE_SECS = -1\nsys.exit(main({['render', *options, str(path)]}))\n"
    )
    for output, has_bar in ((" > out", True), (" | cat", bool(options)), ("", bool(options))):
        text = _terminal_output(home, f"{sys.executable} {call}{output}")
        assert ("\x1b[KRendering " in text and "of 4.90 MB" in text) == has_bar, output
        assert "Rendering" not in text.rpartition("\x1b[K")[2]
    path.write_bytes(b"a line\n")
    assert _terminal_output(home, f"{sys.executable} {call} > out") == ""


# ---- errors


def test_missing_file(render: Render, tmp_path: Path) -> None:
    code, out, err = render(tmp_path / "none\x1b[2J")
    assert (code, out) == (1, b"")
    assert err == (
        f"logshipper: {tmp_path}/none\ufffd[2J: no such file or directory; check the name; "
        "`logshipper logs JOB` prints the log of a stored job\n"
    )


def test_folder(render: Render, tmp_path: Path) -> None:
    assert render(tmp_path) == (
        1,
        b"",
        f"logshipper: {tmp_path}: is a directory; name a file in it\n",
    )


def test_unreadable_file(render: Render, file: Callable[[bytes], Path]) -> None:
    path = file(b"a\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads every file")
    code, out, err = render(path)
    assert (code, out) == (1, b"")
    assert err.startswith(
        f"logshipper: {path}: permission denied; ask its owner, or pipe it in: `sudo cat FILE | "
    )


def test_name_that_is_none(render: Render) -> None:
    code, out, err = render("a\0b")
    assert (code, out) == (1, b"")
    assert err.startswith("logshipper: a\ufffdb: ")


def test_standard_input_that_is_closed(home: Home) -> None:
    process = home.call("render", stdin=None, preexec_fn=lambda: os.close(0))
    assert (process.returncode, process.stdout) == (1, b"")
    assert process.stderr == b"logshipper: standard input: it is closed; name a file\n"


def test_output_that_is_full(home: Home, file: Callable[[bytes], Path]) -> None:
    with Path("/dev/full").open("wb") as full:
        process = home.call("render", str(file(b"a\n" * 9)), stdout=full)
    assert (process.returncode, process.stderr) == (
        1,
        b"logshipper: standard output: no space left on device\n",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--columns 1 x", "--columns: '1' isn't from 2 to 4096"),
        ("--rows 0 x", "--rows: '0' isn't from 1 to 1024"),
        ("--rows many x", "--rows: 'many' isn't a whole number"),
        ("--screen 80 x", "--screen: '80' isn't a size; it looks like 80x25, columns and rows"),
        ("--screen 80x2000 x", "--screen: '2000' isn't from 1 to 1024"),
        ("--screen 80x25 --rows 9 x", "not with --columns, --rows, --no-collapse or --colors"),
        ("--screen 80x25 --no-collapse x", "not with --columns, --rows, --no-collapse or --colors"),
        ("--screen 80x25 --colors keep x", "not with --columns, --rows, --no-collapse or --colors"),
        ("--stream-type tty x", "choose from"),
        ("x y", "unrecognized arguments: y"),
    ],
)
def test_wrong_usage(render: Render, words: str, message: str) -> None:
    code, out, err = render(*words.split())
    assert (code, out) == (2, b"")
    assert message in err


def test_capture_path_doesn_t_import_it() -> None:
    code = "import sys; from logshipper.start.cli import build_parser; build_parser(['run']); print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=ROOT
    )
    assert not {
        "logshipper_observe.commands.reading.render",
        "logshipper.render.renderer",
        "logshipper.render.screen",
    } & set(process.stdout.split())
