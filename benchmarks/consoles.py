"""Console capture beside wandb, ClearML and Aim: how many recorded programs each renders as tmux
does, and the CPU time of capture.

python -m benchmarks.consoles [--rounds 3] [--secs 20] [--clearml PYTHON] [--aim PYTHON]

Each tracker runs offline, by a Python that has it. Missing trackers have no row. All get the same
recorded bytes at the same times, on a terminal of the recorded size.
"""

import argparse
import fcntl
import json
import os
import pty
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.job_cost import LOGSHIPPER, adopt_orphans
from benchmarks.training import WANDB_PYTHON
from tests.programs import capture

FLOOD_LINES = 20_000
COLUMNS, ROWS = 160, 50
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m|\x1b\]8;[^\x1b\x07]*(?:\x07|\x1b\\)")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0e-\x1f\x7f]"
)
_REPEAT = re.compile(r"\[repeated (\d+) times: (.*)\]")
NOTE = "[full-screen output left out]"
# Arguments: tracker, its way of capture or "off", a folder to write to, the kind of output.
# ClearML prints a few lines of its own. They end before BEGIN, or start with its name.
PROGRAM = r"""
import codecs, fcntl, json, os, signal, struct, sys, termios, time
tracker, console, folder, output = sys.argv[1:5]
BEGIN = "=== begin ==="
PATIENCE_SECS = 90.0

class Wandb:
    def __init__(self):
        import wandb
        settings = wandb.Settings(console=console, silent=True)
        self.run = wandb.init(mode="offline", dir=folder, settings=settings)
    def end(self):
        self.run.finish()
    def lines(self):
        self.end()
        with open(os.path.join(self.run.dir, "output.log"), errors="replace", newline="\n") as file:
            return file.read().split("\n")

class Clearml:
    def __init__(self):
        from clearml import Task
        Task.set_offline(True)
        self.task = Task.init("bench", "bench", reuse_last_task_id=False, auto_connect_arg_parser=False,
            auto_connect_frameworks=False, auto_resource_monitoring=False, auto_connect_streams=console != "off")
        if output == "recorded":
            print(BEGIN, flush=True)
    def end(self):
        self.task.close()
    def lines(self):
        import zipfile
        self.end()
        found = []
        with zipfile.ZipFile(str(self.task.get_offline_mode_folder()) + ".zip") as archive:
            for line in archive.read("log.jsonl").decode().splitlines():
                found += [piece for event in json.loads(line) for piece in event.get("msg", "").split("\n")]
        found = found[found.index(BEGIN) + 1:] if BEGIN in found else found
        return [line for line in found if not line.startswith("ClearML ")]

class Aim:
    repo = None
    def __init__(self):
        import aim
        Aim.repo = Aim.repo or aim.Repo(folder, init=True)
        self.run = aim.Run(repo=Aim.repo, system_tracking_interval=None, log_system_params=False,
            capture_terminal_logs=console != "off")
    def end(self):
        self.run.close()
    def lines(self):
        tracker = self.run._system_resource_tracker
        if tracker is None:
            return []
        tracker.stop()  # stores the last lines; the run would stop it again
        tracker.stop = lambda: None
        log = self.run.get_terminal_logs()
        if log is None:
            return []
        steps, (texts, *_) = log.data.items_list()
        return [text.data for _, text in sorted(zip(steps, texts), key=lambda pair: pair[0])]

class Nothing:
    def end(self):
        pass
    def lines(self):
        return []

TRACKERS = {"wandb": Wandb, "clearml": Clearml, "aim": Aim, "none": Nothing}

def play(data, reads):
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    at, begin = 0, time.monotonic()
    for now, size in reads:
        time.sleep(max(0.0, begin + now - time.monotonic()))
        sys.stdout.write(decode(data[at:at + size]))
        sys.stdout.flush()
        at += size

def log_of(program):
    fcntl.ioctl(sys.__stdout__.fileno(), termios.TIOCSWINSZ,
        struct.pack("HHHH", program["rows"], program["columns"], 0, 0))
    capture = TRACKERS[tracker]()
    with open(program["file"], "rb") as file:
        play(file.read(), program["reads"])
    return capture.lines()

def log_of_process(program):
    path = program["file"] + ".log"
    pid = os.fork()
    if pid == 0:
        log = log_of(program)
        with open(path, "w") as file:
            json.dump(log, file)
        os._exit(0)
    deadline = time.monotonic() + program["reads"][-1][0] + PATIENCE_SECS
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(0.05)
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return json.load(file)

if output == "recorded":
    if tracker == "clearml":
        import clearml
    with open(os.path.join(folder, "programs.json")) as file:
        programs = json.load(file)
    logs = {}
    for name, program in programs.items():
        # a second task of a process hangs in ClearML
        logs[name] = (log_of_process if tracker == "clearml" else log_of)(program)
    with open(os.path.join(folder, "logs.json"), "w") as file:
        json.dump(logs, file)
else:
    capture = TRACKERS[tracker]()
    begin = time.monotonic()
    if output == "flood":
        for step in range(int(sys.argv[5])):
            print(f"epoch 12 step {step:07d}: loss 0.123456 acc 0.98765 lr 1.0e-04 grad 0.5432 time 0.123 s/it ok")
    else:
        for tick in range(int(float(sys.argv[5]) * 10)):
            for step in range(10):
                print(f"epoch 12 step {tick}{step}: loss 0.123456 acc 0.98765 time 0.123 s/it ok", flush=True)
            print(f"\r{tick % 100:3d}%|######    | {tick}/1000", end="", file=sys.stderr, flush=True)
            time.sleep(max(0.0, begin + (tick + 1) / 10 - time.monotonic()))
    capture.end()
"""


class Tracker(NamedTuple):
    """A way of capture. name: of the tracker in PROGRAM; console: its way; python: runs it;
    prefix: a command before it."""

    title: str
    name: str
    console: str
    python: str
    prefix: tuple[str, ...] = ()


def trackers(options: argparse.Namespace) -> list[Tracker]:
    """Return all ways of capture that are on this machine, without logshipper."""
    found = []
    if WANDB_PYTHON.exists():
        found += [
            Tracker(f"wandb, `console={way}`", "wandb", way, str(WANDB_PYTHON))
            for way in ("wrap", "redirect")
        ]
    if options.clearml:
        found.append(Tracker("ClearML", "clearml", "on", options.clearml))
    if options.aim:
        found.append(Tracker("Aim", "aim", "on", options.aim))
    return found


# ---- rendering


def rendered(folder: Path, tracker: Tracker | None, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines that a tracker stores of each recorded program; None is logshipper."""
    folder.mkdir(parents=True)
    recordings = {name: capture.read(name) for name in names}
    programs = {}
    for number, (name, recording) in enumerate(recordings.items()):
        file = folder / f"{number}.bytes"
        file.write_bytes(recording.data)
        programs[name] = {
            "rows": recording.rows,
            "columns": recording.columns,
            "file": str(file),
            "reads": recording.reads,
        }
    (folder / "programs.json").write_text(json.dumps(programs))
    (folder / "program.py").write_text(PROGRAM)
    environment = _environment(folder)
    if tracker is not None:
        words = [tracker.python, str(folder / "program.py"), tracker.name, tracker.console]
        _on_terminal([*words, str(folder), "recorded"], environment)
        logs: dict[str, list[str]] = json.loads((folder / "logs.json").read_text())
        return logs
    return {
        name: _by_logshipper(folder, name, programs[name], recording, environment)
        for name, recording in recordings.items()
    }


def _by_logshipper(
    folder: Path,
    name: str,
    program: Mapping[str, object],
    recording: capture.Capture,
    environment: Mapping[str, str],
) -> list[str]:
    place = folder / name
    place.mkdir()
    (place / "programs.json").write_text(json.dumps({name: program}))
    store = {**environment, "LOGSHIPPER_STORE": str(place / "store")}
    words = [sys.executable, str(folder / "program.py"), "none", "off", str(place), "recorded"]
    _on_terminal([LOGSHIPPER, "run", "--", *words], store, recording.columns, recording.rows)
    return subprocess.run(
        [LOGSHIPPER, "logs", "last", "--color", "never"],
        env=store,
        capture_output=True,
        check=True,
        text=True,
        errors="replace",
    ).stdout.split("\n")


def comparable(lines: Sequence[str]) -> list[str]:
    """Return lines without colours, links, trailing blanks and blank lines, as a capture's
    `shown`."""
    plain = (_COLOURS.sub("", line).rstrip(" \r") for line in lines)
    return [line for line in plain if line]


def forgiven(lines: Sequence[str]) -> list[str]:
    """Return lines also without escape sequences, tabs and logshipper's marks: a note has no line,
    and a repeat has all its lines."""
    found = []
    for line in comparable([_ESCAPES.sub("", line).expandtabs() for line in lines]):
        if repeat := _REPEAT.fullmatch(line):
            found += [repeat[2].rstrip(" ")] * int(repeat[1])
        elif line != NOTE:
            found.append(line)
    return found


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Print how many recorded programs each renders as tmux does."""
    names = [name for name in capture.names() if re.search(options.programs, name)]
    shown_of = {name: capture.read(name).shown for name in names}
    ways: dict[str, Tracker | None] = {"logshipper": None}
    ways |= {tracker.title: tracker for tracker in trackers(options)}
    ways = {title: way for title, way in ways.items() if re.search(options.only, title)}
    with ThreadPoolExecutor(len(ways)) as pool:
        results = dict(
            zip(
                ways,
                pool.map(
                    lambda item: rendered(folder / f"rendered-{item[0]}", item[1], names),
                    enumerate(ways.values()),
                ),
                strict=True,
            )
        )
    print(f"\n### Programs that look as in tmux, of {len(shown_of)}\n")
    print("| | as stored | without marks and escape sequences | lines of tmux that it has |")
    print("|---|---|---|---|")
    total = sum(map(len, shown_of.values()))
    for title, logs in results.items():
        strict = {name for name in names if comparable(logs.get(name, [])) == shown_of[name]}
        lenient = {name for name in names if forgiven(logs.get(name, [])) == shown_of[name]}
        had = 0
        for name, shown in shown_of.items():
            lines = forgiven(logs.get(name, []))
            had += sum(min(lines.count(line), shown.count(line)) for line in set(shown))
        print(f"| {title} | {len(strict)} | {len(lenient)} | {had / total:.0%} |")
        print(f"{title}: {' '.join(sorted(set(names) - lenient))}", file=sys.stderr)
    if options.keep:
        Path(options.keep).write_text(json.dumps(results, ensure_ascii=False, indent=1))


# ---- cost


def cost(folder: Path, options: argparse.Namespace) -> None:
    """Print the CPU time of capture: a run with capture, less the same run without."""
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(PROGRAM)
    bare = Tracker("bare", "none", "off", sys.executable)
    ours = bare._replace(title="logshipper", prefix=(LOGSHIPPER, "run", "--"))
    pairs = [(ours, bare)]
    pairs += [(tracker, tracker._replace(console="off")) for tracker in trackers(options)]
    kinds = {"steady": str(options.secs), "flood": str(FLOOD_LINES)}
    runs_of: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for round_ in range(options.rounds):
        for captured, without in pairs:
            for kind, size in kinds.items():
                with_, less = (_cpu_secs(folder, way, kind, size) for way in (captured, without))
                runs_of.setdefault((captured.title, kind), []).append((with_ - less, less))
                print(
                    f"round {round_ + 1}: {captured.title}, {kind}: {with_:.2f} s, {less:.2f} s without",
                    file=sys.stderr,
                )
    print(
        "\n### CPU time of console capture\n\n"
        f"| | ms a second, 100 lines and 10 redraws a second for {options.secs:g} s | of logshipper's "
        f"| s for {FLOOD_LINES:,} lines | of logshipper's | the tracker without capture, s |\n"
        "|---|---|---|---|---|---|"
    )
    first: dict[str, float] = {}
    for captured, _ in pairs:
        cells = []
        for kind, scale in (("steady", 1e3 / options.secs), ("flood", 1.0)):
            more = statistics.median(run[0] for run in runs_of[captured.title, kind]) * scale
            first.setdefault(kind, more)
            cells += [f"{more:.3g}", f"{more / first[kind]:.1f}"]
        base = statistics.median(run[1] for run in runs_of[captured.title, "flood"])
        print(f"| {captured.title} | {' | '.join(cells)} | {base:.2f} |")


def _cpu_secs(folder: Path, tracker: Tracker, kind: str, size: str) -> float:
    """Return the CPU seconds of a run and of all processes that it leaves behind."""
    place = folder / f"run-{time.monotonic_ns()}"
    place.mkdir()
    words = [tracker.python, str(folder / "program.py"), tracker.name, tracker.console]
    command = [*tracker.prefix, *words, str(place), kind, size]
    cpu = _on_terminal(command, _environment(place))
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)  # an orphan
        except ChildProcessError:
            return cpu
        cpu += usage.ru_utime + usage.ru_stime


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "HOME": str(folder),
        "LOGSHIPPER_AGENT": "off",
        "LOGSHIPPER_STORE": str(folder / "store"),
    }


def _on_terminal(
    command: Sequence[str], environment: Mapping[str, str], columns: int = COLUMNS, rows: int = ROWS
) -> float:
    """Run a command on a terminal. Return its CPU seconds."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    output = b""
    try:
        while data := os.read(master, 65536):
            output = (output + data)[-4096:]
    except OSError:  # EIO: no process holds the terminal any more
        pass
    os.close(master)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(
            f"{command}: exit code {child.returncode}: {output.decode(errors='replace')}"
        )
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--secs", type=float, default=20.0, help="of steady output")
    parser.add_argument("--clearml", metavar="PYTHON", default="", help="a Python with ClearML")
    parser.add_argument("--aim", metavar="PYTHON", default="", help="a Python with Aim")
    parser.add_argument("--only", metavar="RE", default="", help="render only by these trackers")
    parser.add_argument("--programs", metavar="RE", default="", help="only these recorded programs")
    parser.add_argument("--keep", metavar="FILE", default="", help="write all logs here as JSON")
    parser.add_argument("parts", nargs="*", default=["compare", "cost"])
    options = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="logshipper-bench-") as folder:
        for part in options.parts:
            {"compare": compare, "cost": cost}[part](Path(folder) / part, options)


if __name__ == "__main__":
    main()
