"""Sends one message: `PYTHON -P -s -m logshipper.notify.sender`, a process of the job's user.

It reads an order, a JSON object, from stdin, and prints an answer in JSON for each target. It ends
after SEND_SECS at the latest. Targets are read here, so that no other process, file or command line
contains a secret one. Reasons of failures contain no part of one either.
"""

import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from signal import SIGKILL
from typing import Any, NamedTuple

from logshipper.background import forbid_core_files
from logshipper.config import MAX_TARGETS, TARGET
from logshipper.masks.masking import masked_text
from logshipper.notify.orders import CHECK, SEND_SECS, TEST, label
from logshipper.search_path import put_installed_first
from logshipper.spool.segment import Json

HOUR_SECS = 3600.0
MAX_REASON_CHARS = 300
MAX_PUBLIC_CHARS = 4  # of a word that a secret address and a reason may share
_MAX_FILE_BYTES = 64 << 10
_SETTING = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_PROGRAM = re.compile(r"[\w./~+-]+")
_EXTRA = "Apprise is not installed beside logshipper: `pip install apprise`, or the wheel's extra `notify`"


class TargetError(Exception):
    """The reason why a target gets no message, without any part of a secret."""


class Target(NamedTuple):
    """A target. label: names it without a secret. is_secret: from a file or a variable."""

    label: str
    address: str
    is_secret: bool = False


# ---- targets


def resolve(reference: str) -> Iterator[Target]:
    """Yield the targets of a reference. Raises TargetError."""
    kind, _, place = reference.partition(":")
    if kind not in ("file", "env"):
        yield Target(kind, reference)
        return
    text = _private_text(os.path.expanduser(place)) if kind == "file" else os.environ.get(place)
    if text is None:
        raise TargetError(
            "the variable is not in the environment of the process that sends messages"
        )
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    for setting in filter(None, map(_SETTING.fullmatch, lines)):
        os.environ[setting[1]] = setting[2]
        lines.remove(setting[0])
    if not 0 < len(lines) <= MAX_TARGETS:
        raise TargetError(f"has {len(lines)} targets; from 1 to {MAX_TARGETS} are possible")
    for number, line in enumerate(lines, 1):
        scheme = line.partition(":")[0]
        if not TARGET.fullmatch(line) or scheme in ("file", "env"):
            raise TargetError(
                f"target {number} there is none: write `desktop`, `cmd:COMMAND` or an address of Apprise"
            )
        yield Target(f"{reference} ({scheme})", line, is_secret=True)


def _private_text(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(fd, encoding="utf-8") as file:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise TargetError("is no file")
            if mode & 0o077:
                raise TargetError(f"others may read it: `chmod 600 {path}`")
            return file.read(_MAX_FILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"cannot be read: {getattr(error, 'strerror', 'no UTF-8')}") from None


def check(target: Target) -> None:
    """Raises TargetError for a target that can never work."""
    if target.address == "desktop":
        _find("notify-send", "the package libnotify-bin, or libnotify, has it")
    elif target.address.startswith("cmd:"):
        program = target.address.removeprefix("cmd:").split()[0]
        if _PROGRAM.fullmatch(program):
            _find(program, "check the command")
    else:
        _notifier(target)


def _find(program: str, remedy: str) -> None:
    command = ["/bin/sh", "-c", 'command -v "$1"', "sh", os.path.expanduser(program)]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
        raise TargetError(f"there is no program {program}; {remedy}")


def _notifier(target: Target) -> Any:  # Any: Apprise has few types
    try:
        import apprise
    except ImportError:
        raise TargetError(_EXTRA) from None
    asset = apprise.AppriseAsset(app_id="logshipper", app_desc="logshipper", storage_mode="memory")
    service: Any = apprise.Apprise.instantiate(target.address, asset=asset)
    if service is None:
        raise TargetError(
            "Apprise does not know this form of address: https://appriseit.com/services"
        )
    if not target.is_secret and service.url(privacy=True) != service.url():
        raise TargetError(
            "the address holds a secret, which others could read here; write it into a file, "
            "`chmod 600` it, and name `file:PATH`"
        )
    if "overflow=" not in target.address:
        service.overflow_mode = "truncate"
    notifier = apprise.Apprise(asset=asset)
    notifier.add(service)
    return notifier


# ---- sending


def send(target: Target, order: Json) -> None:
    """Send a message to a target. Raises TargetError."""
    if target.address == "desktop":
        command = ["notify-send", "--app-name=logshipper", "--", order["title"], order["brief"]]
        _execute(target, command, "")
    elif target.address.startswith("cmd:"):
        # a file without a name: the command line of the shell shows no part of the command
        message = f"{order['title']}\n\n{order['body']}"
        variables = {name: str(order[name]) for name in ("kind", "title", "job_id")}
        variables = {f"LOGSHIPPER_{name.upper()}": value for name, value in variables.items()}
        with open(os.memfd_create("notify", 0), "wb", buffering=0) as file:
            file.write(target.address.removeprefix("cmd:").encode() + b"\n")
            script = file.fileno()
            _execute(target, ["/bin/sh", f"/proc/self/fd/{script}"], message, script, variables)
    else:
        _notify(target, order)


def _execute(
    target: Target,
    command: list[str],
    message: str,
    script: int = -1,
    variables: dict[str, str] | None = None,
) -> None:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[script] if script >= 0 else [],
            env={**os.environ, **(variables or {})},
        )
    except OSError as error:
        raise TargetError(f"{command[0]} cannot run: {error.strerror}") from None
    assert process.stdin is not None and process.stderr is not None  # noqa: S101, PT018  by PIPE
    with process:
        try:
            process.stdin.write(message.encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it reads no message
        code = process.wait()
        os.set_blocking(process.stderr.fileno(), False)  # a child of it may hold the pipe
        text = (process.stderr.read(4096) or b"").decode("utf-8", "replace").strip()
    if code:
        words = public(text.rpartition("\n")[2], target)
        raise TargetError(f"exit code {code}{': ' if words else ''}{words}")


def _notify(target: Target, order: Json) -> None:
    import logging

    notifier = _notifier(target)
    words: list[str] = []

    class Handler(logging.Handler):
        """Collects the words of this thread's failure."""

        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == threading.get_ident():
                words.append(record.getMessage())

    logging.getLogger("apprise").addHandler(Handler(logging.WARNING))
    if not notifier.notify(title=order["title"], body=order["body"], body_format="text"):
        reason = words[-1] if words else "the service did not take the message"
        raise TargetError(public(reason, target))


def public(text: str, target: Target) -> str:
    """Return the words of a service or command without secrets."""
    if target.is_secret:
        from urllib.parse import unquote

        scheme, _, address = target.address.partition(":")
        for part in re.split(r"[^\w.-]+", f"{address} {unquote(address)}"):
            if len(part) > MAX_PUBLIC_CHARS and part.lower() != scheme:
                text = re.sub(re.escape(part), "***", text, flags=re.IGNORECASE)
    return masked_text(" ".join(text.split()))[:MAX_REASON_CHARS]


# ---- the process


def admit(job_id: str, kind: str) -> bool:
    """Return whether no message of this kind about this job was sent in the last hour, by any
    attempt, step or host with the same home."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "logshipper", "notified")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        for entry in os.scandir(folder):
            if time.time() - entry.stat().st_mtime > HOUR_SECS:
                os.unlink(entry.path)
        os.close(os.open(os.path.join(folder, f"{job_id}.{kind}"), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    except OSError:
        pass  # better a message too many
    return True


def page_of(order: Json) -> str:
    """Return the address of the job's page in Grafana; "" if unknown."""
    from logshipper.errors import ConfigError
    from logshipper_ingest.config.site import look

    try:
        grafana = look(os.environ)[0].grafana
    except ConfigError:
        return ""
    page = (order["job_id"], grafana.cluster, order["begin_ms"], None)
    return grafana.job_page(*page) if grafana.url and not grafana.problems() else ""


def serve(order: Json) -> Iterator[Json]:
    """Execute an order; yield an answer for each target."""
    is_check = order["kind"] == CHECK
    if not (is_check or order["kind"] == TEST):
        if not admit(order["job_id"], order["kind"]):
            yield {"held": True}
            return
        if order["begin_ms"] and (page := page_of(order)):
            order["body"] += f"\npage: {page}"
    targets: list[Target] = []
    for reference in order["targets"]:
        try:
            targets += resolve(reference)
        except TargetError as error:
            yield {"target": label(reference), "reason": str(error)}
    reasons: dict[int, str] = {}

    def work(number: int, target: Target) -> None:
        try:
            check(target) if is_check else send(target, order)
            reasons[number] = ""
        except TargetError as error:
            reasons[number] = str(error)
        except Exception as error:  # a service's own fault
            reasons[number] = public(f"{type(error).__name__}: {error}", target)

    threads = [threading.Thread(target=work, args=item, daemon=True) for item in enumerate(targets)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + SEND_SECS
    for number, (thread, target) in enumerate(zip(threads, targets, strict=True)):
        thread.join(max(0.0, deadline - time.monotonic()))
        reason = reasons.get(number, f"no answer within {SEND_SECS:g} s")
        yield {"target": target.label, **({"reason": reason} if reason else {})}


def main() -> None:
    put_installed_first()
    forbid_core_files()
    order = json.load(sys.stdin)
    os.environ.setdefault("HOME", os.path.expanduser("~"))  # Slurm's plugin passes no environment
    try:
        os.chdir(order.get("cwd") or os.environ["HOME"])
    except OSError:
        os.chdir("/")
    for answer in serve(order):
        print(json.dumps(answer), flush=True)
    if any(thread.daemon for thread in threading.enumerate()):
        os.killpg(0, SIGKILL)  # and the commands that hang
    os._exit(0)


if __name__ == "__main__":
    main()
