"""The start of a job, if recorded (logshipper/sidecar/context.py) or imported."""

import hashlib
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from logshipper.sidecar.context import EVENT
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import to_json
from logshipper_observe.model.records import display_text, table_text, text_of

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobEvent
    from logshipper_ingest.model.stores import Reader

GIT_DIFF = "git.diff"
# prefix of the options, by field of the event
_GROUPS = {"environment": "env", "scheduler": "scheduler", "git": "git", "python": "python"}


def contexts_of(reader: "Reader") -> "dict[int, JobEvent]":
    """The events of the newest attempt's captures, by the capture's number, in order of time."""
    newest = max((capture.attempt for capture in reader.captures), default=1)
    contexts: dict[int, JobEvent] = {}
    for event in reader.events(attempt=newest, names=(EVENT,)):
        contexts.setdefault(event.capture, event)
    return contexts


def context_options(reader: "Reader") -> dict[str, str]:
    """Return JSON texts by option: `command`, `cwd`, `cores`, `env.*`, `scheduler.*`, `git.*`,
    `python.*`, of the first capture with any.

    Imported jobs have `command`, `cwd` and their system's names, such as `balsam.ranks_per_node`.
    The data is untrusted: invalid parts are dropped.
    """
    origin = reader.summary.origin
    if origin:
        details = dict(reader.details())
        start = {"command": details.get("command"), "cwd": details.get("work_dir")}
        for name in ("work_dir", "run_secs", "messages"):
            details.pop(name, None)
        return _plain_options(origin, details) | _options(start)
    event = next(iter(contexts_of(reader).values()), None)
    return {} if event is None else _options(event.event)


def _options(event: Mapping[str, Any]) -> dict[str, str]:  # Any: JSON
    options = {}
    command, cores = event.get("command"), event.get("cores")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        options["command"] = to_json(shlex.join(command))
    if isinstance(event.get("cwd"), str):
        options["cwd"] = to_json(event["cwd"])
    if isinstance(cores, list):
        options["cores"] = str(len(cores))
    for name, prefix in _GROUPS.items():
        values = event.get(name)
        if isinstance(values, dict):
            options |= _plain_options(prefix, values)
    return options


def _plain_options(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:  # Any: JSON
    return {
        f"{prefix}.{key}": to_json(value)
        for key, value in values.items()
        if isinstance(value, str | int | float | bool)
    }


def option_text(name: str, value: str, *, brief: bool = False) -> str:
    """Return an option's JSON text for a table: of a diff its length and a hash, to compare two.

    brief: 6 significant digits of fractions.
    """
    if name != GIT_DIFF:
        return table_text(value) if brief else display_text(value)
    text = text_of(value)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{plural(text.count(chr(10)), 'line')}, sha256 {digest}" if text else "none"


def cwd_of(event: Mapping[str, Any]) -> str:  # Any: JSON
    cwd = event.get("cwd")
    return cwd if isinstance(cwd, str) else ""


def cores_of(event: Mapping[str, Any]) -> list[int]:  # Any: JSON
    cores = event.get("cores")
    return [core for core in cores if type(core) is int] if isinstance(cores, list) else []
