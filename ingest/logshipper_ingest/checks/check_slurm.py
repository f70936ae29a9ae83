"""Checks of Slurm on this node, if present. On a compute node: the plugin and its settings. On a
controller: the folder of hook and agent (deploy/slurm/README.md)."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from logshipper import __version__
from logshipper.errors import os_words
from logshipper.filesystem import network_type
from logshipper_ingest.checks.findings import Finding, note, ok, wrong
from logshipper_ingest.checks.slurm_releases import fits, release_name, trial
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.slurm.files import (
    StackLine,
    find_conf,
    find_plugin,
    plugin_version,
    read_conf,
    read_stack,
    stack_path,
)

DEFAULTS = {
    "spool": "/var/spool/logshipper", "cluster": "local", "python": "/opt/logshipper/bin/python", "keeper": "",
    "columns": "160", "rows": "50", "drain_secs": "3", "start_secs": "10", "stall_secs": "10", "max_captures": "1000",
}  # fmt: skip
RANGES = {"columns": (20, 1000), "rows": (5, 1000), "drain_secs": (0, 60), "start_secs": (1, 600),
          "stall_secs": (1, 600), "max_captures": (1, 1_000_000)}  # fmt: skip
ENDED_DIR = "/var/spool/logshipper-ended"  # default of the hook
LINKER = "/usr/libexec/logshipper/link-slurm-plugin"  # of the package `logshipper`
_PATHS = ("spool", "python", "keeper")
_MEMORY = ("tmpfs", "ramfs")
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_PROGRAM_SECS = 20.0
_NOBODY = 65534
_ASK = "import logshipper, logshipper.slurm_sidecar; print(logshipper.__version__)"
_ABOUT = "slurm plugin"
_ok, _note, _wrong = partial(ok, _ABOUT), partial(note, _ABOUT), partial(wrong, _ABOUT)


class _Slurm(NamedTuple):
    """conf: path of slurm.conf; options: its content, by names in lower case."""

    conf: str
    options: Mapping[str, str]


def check_slurm(config: AgentConfig, plugstack: str | None = None) -> list[Finding]:
    """Return findings about Slurm on this node, or none without Slurm. plugstack: replaces the
    usual file."""
    conf = find_conf(os.environ)
    slurm = _Slurm(conf, read_conf(conf) if conf else {})
    findings: list[Finding] = []
    if plugstack or (conf and _program("slurmd")):
        findings += _compute_node(config, slurm, plugstack or stack_path(conf, slurm.options))
    if conf and (_program("slurmctld") or config.slurm.ended_dir):
        findings += _controller(config, slurm)
    return findings


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}") or ""


# ---- a compute node


def _compute_node(config: AgentConfig, slurm: _Slurm, path: str) -> Iterator[Finding]:
    yield _facts(slurm)
    stack = read_stack(path)
    for problem in stack.problems:
        yield wrong("slurm plugstack.conf", problem, "Fix or remove it.")
    lines = [line for line in stack.plugins if os.path.basename(line.path).startswith("logshipper")]
    if not lines:
        yield _not_loaded(slurm, path)
        return
    line = lines[0]
    if len(lines) > 1:
        words = f"{lines[1].where}: the plugin stands there once more: Slurm takes the first line"
        yield _wrong(words, "Remove one of the two.")
    if line.kind == "required":
        fix = "Write `optional`: jobs shall run whatever becomes of the plugin."
        yield _wrong(f"{line.where}: is required: where it can't be loaded, no job starts", fix)
    yield from _order(line, stack.plugins)
    settings, findings = _settings(line)
    yield from findings
    yield from _compare_settings(line, settings, config)
    plugin = find_plugin(line.path, slurm.options)
    yield from _plugin_file(line, plugin)
    keeper = settings["keeper"] or (
        os.path.join(os.path.dirname(plugin), "logshipper-keeper") if plugin else ""
    )
    if keeper:
        yield from _check_owner(_ABOUT, keeper, "the keeper")
    yield from _python(settings["python"])
    yield from _spool(settings["spool"])


def _facts(slurm: _Slurm) -> Finding:
    tracking = slurm.options.get("proctracktype", "proctrack/cgroup")
    words = f"{slurm.conf or 'no slurm.conf'}: ProctrackType={tracking}, {_cgroup()}"
    if slurm.options.get("prologflags"):
        words += f", PrologFlags={slurm.options['prologflags']}"
    if tracking == "proctrack/cgroup" or not slurm.conf:
        return ok("slurm", words)
    fix = "With proctrack/cgroup the agent knows a job's processes for certain. Without it, `logshipper run`"
    fix += " and the fallback by TaskProlog log a job 4711 as 4711.uUID."
    return note("slurm", words, fix)


def _cgroup() -> str:
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return "cgroup v2"
    return "cgroup v1" if os.path.isdir("/sys/fs/cgroup/freezer") else "no cgroups"


def _not_loaded(slurm: _Slurm, path: str) -> Finding:
    hook, epilog = slurm.options.get("taskprolog", ""), slurm.options.get("taskepilog", "")
    if hook:
        words = f"{path} doesn't load it; TaskProlog={hook} may be the fallback for bash scripts"
        fix = "TaskEpilog=.../task-epilog, or the ends of jobs' outputs are lost."
        return _note(words) if epilog else _wrong(f"{words}, but TaskEpilog isn't set", fix)
    state = "doesn't load it" if os.path.exists(path) else "isn't there"
    fix = f"A line in {path}: `optional logshipper.so spool=... cluster=...`."
    fix += " Without it only `logshipper run` captures."
    return _note(f"{path} {state}: no job is captured", fix)


def _order(line: StackLine, plugins: list[StackLine]) -> Iterator[Finding]:
    names = [os.path.basename(plugin.path) for plugin in plugins]
    if "spank_pyxis.so" in names and names.index("spank_pyxis.so") < plugins.index(line):
        words = "stands after spank_pyxis.so: its relay would start inside the container"
        fix = "Write it before Pyxis'; included files come in alphabetical order."
        yield _wrong(f"{line.where}: {words}", fix)


def _settings(line: StackLine) -> tuple[dict[str, str], list[Finding]]:
    """Return the plugin's settings as it reads them, with the default for an invalid one."""
    settings, problems = dict(DEFAULTS), []
    for word in line.arguments:
        key, equals, value = word.partition("=")
        if not equals or key not in DEFAULTS:
            names = ", ".join(f"{name}=" for name in DEFAULTS)
            problems.append(f"`{word[:100]}` isn't one of its arguments, which are {names}")
        elif key in RANGES and not _is_within(value, *RANGES[key]):
            limits = " to ".join(map(str, RANGES[key]))
            problems.append(f"{key}= takes a number from {limits}, not `{value[:100]}`")
        elif key in _PATHS and not value.startswith("/"):
            problems.append(f"{key}= takes an absolute path, not `{value[:100]}`")
        else:
            settings[key] = value
    fix = "With a wrong argument the plugin captures nothing."
    return settings, [_wrong(f"{line.where}: {words}", fix) for words in problems]


def _is_within(value: str, least: int, greatest: int) -> bool:
    return value.isascii() and value.isdigit() and least <= int(value[:12]) <= greatest


def _compare_settings(
    line: StackLine, settings: Mapping[str, str], config: AgentConfig
) -> list[Finding]:
    agent, file = config.agent, config.path or "agent.toml"

    def words(key: str, option: str) -> str:
        value = getattr(agent, option)
        return f"{line.where}: {key}={settings[key]}, but [agent] {option} is {value} in {file}"

    findings = []
    if os.path.normpath(settings["spool"]) != os.path.normpath(agent.spool_dir):
        fix = "The agent ships what is in its own spool: both must name one folder."
        findings.append(_wrong(words("spool", "spool_dir"), fix))
    if settings["cluster"] != agent.cluster:
        fix = "Jobs would be looked for in the wrong cluster: both must have one name."
        findings.append(_wrong(words("cluster", "cluster"), fix))
    if int(settings["max_captures"]) != agent.max_captures_per_user:
        findings.append(_note(words("max_captures", "max_captures_per_user")))
    return findings or [_ok(f"{line.where}: loads it, with spool and cluster of {file}")]


def _plugin_file(line: StackLine, plugin: str) -> Iterator[Finding]:
    if not plugin:
        fix = "Install it into Slurm's plugin directory (PluginDir), or write its whole path."
        yield _wrong(f"{line.where}: there is no {line.path}", fix)
        return
    yield from _check_owner(_ABOUT, plugin, "the plugin", program=False)
    linked = os.path.realpath(plugin)
    place = plugin if linked == plugin else f"{plugin} (that is {linked})"
    plugin_release, slurm_release = plugin_version(plugin), _slurm_version()
    if plugin_release is None or slurm_release is None:
        yield _note(f"{place}: it can't be told whether it was built for this Slurm")
    elif not fits(plugin_release, slurm_release):
        name = release_name(slurm_release)
        words = f"{place} was built for Slurm {release_name(plugin_release)}, this one is {name}: Slurm doesn't load it"
        fix = f"Install the plugin's package for {name} (where it is: {LINKER}), or build it: `make slurm-plugin`."
        yield _wrong(words, fix)
    else:
        yield _ok(f"{place} was built for this Slurm, {release_name(slurm_release)}")
        yield trial(_ABOUT, slurm_release)


def _slurm_version() -> tuple[int, int] | None:
    """Return the version of slurmd from `slurmd -V`, such as `slurm 23.11.4`."""
    program = _program("slurmd")
    if not program:
        return None
    try:
        output = _run([program, "-V"]).stdout
        major, minor = output.split()[-1].split(".")[:2]
        return int(major), int(minor)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def _run(command: list[str], user: int | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a program. Raises OSError, SubprocessError. user: runs it, with only the group of the
    same number."""
    groups: list[int] | None = None if user is None else []
    return subprocess.run(
        command, check=False, cwd="/", env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", timeout=_PROGRAM_SECS, user=user, group=user, extra_groups=groups,
    )  # fmt: skip


def _check_owner(
    about: str, path: str, description: str, *, program: bool = True
) -> Iterator[Finding]:
    """Check that only root can write a file that root runs or loads, and that it is executable."""
    try:
        status = os.stat(path)
    except OSError as error:
        yield wrong(about, f"{description} {path}: {os_words(error)}", "Install it there.")
        return
    if not stat.S_ISREG(status.st_mode):
        yield wrong(about, f"{description} {path} isn't a file")
    elif program and not status.st_mode & 0o111:
        yield wrong(about, f"{description} {path} isn't executable", f"`chmod 755 {path}`")
    else:
        folders = (os.path.dirname(path), os.path.dirname(os.path.realpath(path)))
        writers = [place for place in dict.fromkeys((path, *folders)) if _others_may_write(place)]
        for place in writers:
            words = f"{description}: others than root may write {place}, which root runs"
            yield wrong(about, words, f"`chown root {place}; chmod go-w {place}`")
        if not writers:
            yield ok(about, f"{description} {path} is there, and root's")


def _others_may_write(place: str) -> bool:
    status = os.stat(place)
    return status.st_uid != 0 or bool(status.st_mode & 0o022)


def _python(python: str) -> Iterator[Finding]:
    """Check that jobs' users can run the sidecar's Python, with this version of logshipper."""
    user = _NOBODY if os.geteuid() == 0 else None
    user_text = "this user" if user is None else "an ordinary user"
    fix = (
        "python= names one with logshipper installed, in folders that everybody may pass and read."
    )
    try:
        process = _run([python, "-P", "-s", "-c", _ASK], user)
    except (OSError, subprocess.SubprocessError) as error:
        is_late = isinstance(error, subprocess.TimeoutExpired)
        reason = f"no end within {_PROGRAM_SECS:g} s" if is_late else str(error)
        yield _wrong(f"python={python}: {user_text} can't run it: {reason}", fix)
        return
    version = process.stdout.strip()
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"it ended with {process.returncode}"]
        words = f"{user_text} can't run logshipper by it: {lines[-1][:200]}"
        yield _wrong(f"python={python}: {words}", fix)
    elif version != __version__:
        words = f"python={python} has logshipper {version[:60]}, this is {__version__}"
        yield _wrong(words, "Plugin, agent and Python's package belong to one version.")
    else:
        yield _ok(f"python={python}: {user_text} can run logshipper {__version__} by it")


def _spool(path: str) -> Iterator[Finding]:
    """Check the plugin's requirements for the spool. Another finding covers disk and space."""
    if network_type(path) is not None:
        return  # check_node reports it, and it may hang
    try:
        status = os.lstat(path)
    except OSError as error:
        fix = "Does the agent run? It makes its spool."
        yield _wrong(f"spool={path}: {os_words(error)}", fix)
        return
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if status.st_uid != 0 or mode != 0o711 or not stat.S_ISDIR(status.st_mode):
        words = f"must be a folder of root's with mode 0711, and is uid {status.st_uid}'s with {mode:04o}"
        fix = f"`chown root {path}; chmod 711 {path}`; the agent runs as root then."
        yield _wrong(f"spool={path}: {words}", fix)
    kind = _disk(path)
    if kind in _MEMORY:
        words = f"spool={path} is in memory ({kind}): what jobs print counts there, and a reboot loses it"
        yield _note(words, "A folder on a disk of the node is better.")


def _disk(path: str) -> str:
    """Return the file system's type as mount names it, "" if unknown."""
    place = f"{os.path.realpath(path)}/"
    best_point = kind = ""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as table:
            for fields in map(str.split, table):
                point = fields[1].rstrip("/")
                if place.startswith(f"{point}/") and len(point) >= len(best_point):
                    best_point, kind = point, fields[2]
    except (OSError, IndexError):
        pass
    return kind


# ---- a controller


def _controller(config: AgentConfig, slurm: _Slurm) -> Iterator[Finding]:
    """Check the hook that reports job ends."""
    about, folder = "slurm hook", config.slurm.ended_dir
    options = slurm.options
    by_jobcomp = options.get("jobcomptype", "").removeprefix("jobcomp/") == "script"
    names = ("JobCompLoc", "EpilogSlurmctld") if by_jobcomp else ("EpilogSlurmctld",)
    paths = {name: options.get(name.lower(), "") for name in names}
    hooks = {option: path for option, path in paths.items() if path and _calls_hook(path)}
    if not hooks:
        if folder:
            words = f"[slurm] ended_dir is set, but {slurm.conf} names no hook that writes there"
            fix = "JobCompType=jobcomp/script and JobCompLoc=.../job-ended, or EpilogSlurmctld=.../job-ended."
            yield wrong(about, words, fix)
        return
    if not folder:
        fix = f'[slurm] ended_dir = "{ENDED_DIR}" in this machine\'s {config.path or "agent.toml"}.'
        yield wrong(about, f"{', '.join(hooks)}: nobody takes what the hook writes", fix)
        return
    for option, path in hooks.items():
        yield from _check_owner(about, path, option)
        if os.path.normpath(folder) not in _hook_folders(path):
            words = f"{option}={path} doesn't write into [slurm] ended_dir, {folder}"
            fix = f"Its folder is {ENDED_DIR}, or what a script that calls it gives."
            yield wrong(about, words, fix)
    if len(hooks) > 1:
        words = "JobCompLoc and EpilogSlurmctld both call it: one is enough, JobCompLoc knows more"
        yield note(about, words)
    if not os.path.isdir(folder):
        words = f"[slurm] ended_dir: {folder} isn't there"
        yield wrong(about, words, "The agent makes it: does it run?")


def _calls_hook(path: str) -> bool:
    return os.path.basename(path) == "job-ended" or "job-ended" in _text(path)


def _hook_folders(path: str) -> list[str]:
    """Return the folders where a hook may write, from any path in the scripts that call it."""
    if os.path.basename(path) == "job-ended":
        return [ENDED_DIR]
    words = _text(path).replace('"', " ").replace("'", " ").split()
    return [os.path.normpath(word) for word in words if word.startswith("/")]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64 << 10)
    except OSError:
        return ""
