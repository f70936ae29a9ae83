"""Parses `~/.logoptin` (R6, R7, R12, R13): YAML with a few keys. A malformed file is refused as a
whole: fails closed."""

from collections.abc import Callable

from logshipper.errors import ConfigError
from logshipper.late_pattern import late_pattern
from logshipper.named_tuple import NamedTuple
from logshipper.safe_text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODES: tuple[str, ...] = ("enabled", "metadata", "disabled")  # from the widest to the narrowest
COLORS: tuple[str, ...] = ("strip", "keep")
JSON, DICT, PAIRS, AUTO = METADATA_KINDS = ("json", "dict", "pairs", "auto")
MAX_PATTERNS = 8
MAX_KEYS, MAX_KEY_CHARACTERS = 100, 128  # of `ignore`, and of `rename`
# an attribute of each record has it: the segment format has 64 bytes for all of a line's
_PATTERN_NAME = late_pattern(r"[a-z][a-z0-9_-]{0,15}")
MIN_SNAPSHOTS_SECS, MAX_SNAPSHOTS_SECS = 10.0, 24 * 3600.0
_INTERVAL = late_pattern(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([smh])")
NOTIFY_KINDS = ("end", "failure", "limit", "nan", "silence")
MAX_TARGETS, MAX_TARGET_CHARACTERS = 8, 2048
TARGET = late_pattern(
    r"desktop|cmd:.*\S.*|file:.*\S.*|env:[A-Za-z_][A-Za-z0-9_]*|[a-z][a-z0-9+.-]*://\S+"
)
TARGET_FORMS = "`desktop`, `cmd:COMMAND`, `file:PATH`, `env:NAME` or an address of Apprise such as `ntfys://TOPIC`"
# lines besides blank ones and comments
_TRIVIAL: tuple[list[bytes], ...] = ([], [b"---"], [b"{}"], [b"---", b"{}"])


class MetadataPattern(NamedTuple):
    """A regular expression of the user's: its named groups are the keys of a record."""

    name: str  # the records' origin
    pattern: str


class Notify(NamedTuple):
    """Messages about the job (logshipper/notify)."""

    to: tuple[str, ...]  # targets
    on: tuple[str, ...] = NOTIFY_KINDS  # kinds of messages
    silence: float = 1800.0  # seconds without output


class Config(NamedTuple):
    """One job's configuration at its start."""

    mode: str = "enabled"  # enabled, metadata or disabled
    commands: bool = True  # obey /LOGCOMMAND lines
    tty: bool = True  # CMD sees terminals, not pipes
    # under Slurm, each rank of a step in a captured batch script has its own capture
    per_task: bool = False
    colors: str = "strip"  # keep or strip, in the log's text
    snapshots: float = 0.0  # seconds between log lines of running bars; 0: none
    # record the start (logshipper/sidecar/context.py); not set: runs by hand record a part of it
    context: bool | None = None
    # kinds of records (logshipper/classify/text_records.py); not set: JSON objects, and
    # series in mode `enabled` of runs by hand (logshipper/classify/series)
    metadata: tuple[str | MetadataPattern, ...] | None = None
    # corrections of series (logshipper/classify/series/key_rules.py):
    ignore: tuple[str, ...] = ()  # keys to omit, perhaps with wildcards
    rename: tuple[tuple[str, str], ...] = ()  # new names by key
    # mask secrets in lines (logshipper/masks/secret_shapes.py); command lines always
    mask: bool = True
    notify: Notify | None = None  # messages about the job


def _lines_of(content: bytes) -> list[bytes]:
    """Those that are neither blank nor comments, without blanks at their ends."""
    lines = [line.rstrip(b" \t\r") for line in content.split(b"\n")]
    return [line for line in lines if line and line.lstrip(b" \t")[:1] != b"#"]


def parse(content: bytes, source: str) -> Config:
    """The configuration in a file's content. source: the file's name, for errors.

    Raises ConfigError with every problem found.
    """
    if _lines_of(content) in _TRIVIAL:  # PyYAML costs 20 ms: most files are empty
        return Config()
    value = _load_yaml(content, source)
    if value is None:
        return Config()
    if not isinstance(value, dict):
        is_text = isinstance(value, str)
        kind = (
            "a list" if isinstance(value, list) else "plain text" if is_text else "a single value"
        )
        raise ConfigError(
            source, [f"this is {kind}; it takes `key: value` lines, such as `mode: enabled`"]
        )
    problems: list[str] = []
    read: dict[str, Any] = {}  # Any: YAML values, checked by the key's reader
    for key, setting in value.items():
        reader = _READERS.get(key) if isinstance(key, str) else None
        if reader is None:
            problems.append(
                f"unknown key {_quote(key)}{_did_you_mean(key, tuple(_READERS))}; keys are {_quote_all(_READERS)}"
            )
            continue
        try:
            read[key] = reader(key, setting)
        except _Problem as problem:
            problems += problem.args
    if problems:
        raise ConfigError(source, problems)
    return Config(**read)


def parse_opt_in(content: bytes) -> tuple[Config, tuple[str, ...]]:
    """Parse ~/.logoptin; return its problems, too: with any, logging starts disabled (fails
    closed)."""
    try:
        return parse(content, "~/.logoptin"), ()
    except ConfigError as error:
        return Config(mode="disabled"), error.problems


class _Problem(Exception):
    """Sentences against a setting."""


def _read_mode(key: str, setting: object) -> str:
    if setting in MODES:
        return str(setting)
    if isinstance(setting, bool):
        word, mode = ("on", "enabled") if setting else ("off", "disabled")
        raise _Problem(
            f"YAML reads `mode: {word}` as `{str(setting).lower()}`; write `mode: {mode}`"
        )
    raise _Problem(
        f"{key}: {_quote(setting)} is no mode{_did_you_mean(setting, MODES)}; modes are {_quote_all(MODES)}"
    )


def _read_switch(key: str, setting: object) -> bool:
    if isinstance(setting, bool):
        return setting
    raise _Problem(f"{key}: {_quote(setting)} is neither `on` nor `off`")


def _read_colors(key: str, setting: object) -> str:
    if setting in COLORS:
        return str(setting)
    raise _Problem(
        f"{key}: {_quote(setting)} is neither `keep` nor `strip`{_did_you_mean(setting, COLORS)}"
    )


def _read_interval(key: str, setting: object) -> float:
    if setting is False:
        return 0.0
    match = _INTERVAL.fullmatch(setting) if isinstance(setting, str) else None
    if match is None:
        example = f"{setting}s" if type(setting) is int and 10 <= setting <= 86400 else "30s"
        fault = "is no span of time: a number with s, m or h is"
        if setting is True:
            fault = "doesn't say how often"
        raise _Problem(f"{key}: {_quote(setting)} {fault}; write `{key}: {example}`, or `off`")
    secs = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    if MIN_SNAPSHOTS_SECS <= secs <= MAX_SNAPSHOTS_SECS:
        return secs
    fault = "short" if secs < MIN_SNAPSHOTS_SECS else "long"
    raise _Problem(f"{key}: {_quote(setting)} is too {fault}; from `10s` to `24h`")


def _read_metadata(key: str, setting: object) -> tuple[str | MetadataPattern, ...]:
    if not isinstance(setting, list) or JSON not in setting:
        raise _Problem(
            f"{key}: {_quote(setting)} is no list with `{JSON}` in it; write `{key}: [{', '.join(METADATA_KINDS)}]`"
        )
    problems: list[str] = []
    kinds: list[str | MetadataPattern] = []
    patterns = 0
    for item in setting:
        if item in METADATA_KINDS:
            kinds.append(str(item))
        elif isinstance(item, dict):
            patterns += 1
            try:
                kinds.append(_read_pattern(key, item, f"pattern{patterns}"))
            except _Problem as problem:
                problems += problem.args
        else:
            problems.append(
                f"{key}: {_quote(item)} is no kind of metadata{_did_you_mean(item, METADATA_KINDS)}; "
                f"kinds are {_quote_all(METADATA_KINDS)}, and `{{pattern: 'loss is (?P<loss>[0-9.]+)'}}`"
            )
    names = [kind if isinstance(kind, str) else kind.name for kind in kinds]
    problems += [
        f"{key}: `{name}` stands twice" for name in dict.fromkeys(names) if names.count(name) > 1
    ]
    if patterns > MAX_PATTERNS:
        problems.append(f"{key}: {patterns} patterns; {MAX_PATTERNS} is the limit")
    if problems:
        raise _Problem(*problems)
    return tuple(kinds)


def _read_pattern(key: str, item: "dict[Any, Any]", default_name: str) -> MetadataPattern:
    pattern, name = item.get("pattern"), item.get("name", default_name)
    if not isinstance(pattern, str) or not item.keys() <= {"pattern", "name"}:
        raise _Problem(
            f"{key}: {_quote(item)} is no pattern; write `{{pattern: 'loss is (?P<loss>[0-9.]+)', name: mine}}`"
        )
    if not isinstance(name, str) or not _PATTERN_NAME.fullmatch(name) or name in METADATA_KINDS:
        raise _Problem(
            f"{key}: {_quote(name)} is no name for a pattern: 16 small letters, digits, `_` or `-` "
            "at most, a letter first, and not a kind's"
        )
    # late: few have any
    from logshipper.metadata_pattern import problem_of

    problem = problem_of(pattern)
    if problem:
        raise _Problem(f"{key}: the pattern {_quote(pattern)} {problem}")
    return MetadataPattern(name, pattern)


def _read_ignore(key: str, setting: object) -> tuple[str, ...]:
    if not isinstance(setting, list):
        raise _Problem(f"{key}: {_quote(setting)} is no list; write `{key}: ['tokens/s', 'time*']`")
    return tuple(_read_keys(key, setting))


def _read_rename(key: str, setting: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(setting, dict):
        raise _Problem(
            f"{key}: {_quote(setting)} has no new names; write `{key}: {{'lm loss': loss}}`"
        )
    new_names = _read_keys(key, list(setting.values()))
    return tuple(zip(_read_keys(key, list(setting)), new_names, strict=True))


def _read_notify(key: str, setting: object) -> Notify:
    """Read the setting. Its problems quote no target, which may be a secret."""
    if not isinstance(setting, dict):
        return Notify(_read_targets(key, setting))
    # YAML reads the key `on` as true
    options = {"on" if name is True else name: value for name, value in setting.items()}
    if "to" not in options or not options.keys() <= {*Notify._fields}:
        raise _Problem(f"{key}: write `{key}: {{to: TARGET, on: [failure, nan], silence: 1h}}`")
    notify = Notify(_read_targets(key, options["to"]))
    if "on" in options:
        kinds = options["on"]
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not isinstance(kinds, list) or not kinds or any(k not in NOTIFY_KINDS for k in kinds):
            raise _Problem(f"{key}: `on` is a list of {_quote_all(NOTIFY_KINDS)}")
        notify = notify._replace(on=tuple(kinds))
    if "silence" in options:
        secs = _read_interval("silence", options["silence"])
        if not secs:
            raise _Problem(f"{key}: `silence: off` is no span; leave `silence` out of `on` instead")
        notify = notify._replace(silence=secs)
    return notify


def parse_targets(option: str, targets: list[str]) -> tuple[str, ...]:
    """Return the targets of an option. Raises ConfigError."""
    try:
        return _read_targets("", targets)
    except _Problem as problem:
        raise ConfigError(option, [text.removeprefix(": ") for text in problem.args]) from None


def _read_targets(key: str, setting: object) -> tuple[str, ...]:
    targets = setting if isinstance(setting, list) else [setting]
    if not 0 < len(targets) <= MAX_TARGETS:
        raise _Problem(f"{key}: {len(targets)} targets; from 1 to {MAX_TARGETS} are possible")
    for number, target in enumerate(targets, 1):
        if not (
            isinstance(target, str)
            and len(target) <= MAX_TARGET_CHARACTERS
            and TARGET.fullmatch(target)
        ):
            raise _Problem(f"{key}: target {number} is wrong; a target is {TARGET_FORMS}")
    return tuple(targets)


def _read_keys(key: str, names: "list[Any]") -> list[str]:
    problems = [
        f"{key}: {_quote(name)} is no key: write 1 to {MAX_KEY_CHARACTERS} printable characters in quotes"
        for name in names
        if not (
            isinstance(name, str)
            and name.isprintable()
            and 0 < len(name.strip()) <= len(name) <= MAX_KEY_CHARACTERS
        )
    ]
    if len(names) > MAX_KEYS:
        problems = [f"{key}: {len(names)} keys; {MAX_KEYS} is the limit: wildcards match several"]
    if problems:
        raise _Problem(*problems)
    return names


_READERS: dict[str, Callable[[str, object], object]] = {
    "mode": _read_mode,
    "commands": _read_switch,
    "tty": _read_switch,
    "per_task": _read_switch,
    "colors": _read_colors,
    "snapshots": _read_interval,
    "context": _read_switch,
    "metadata": _read_metadata,
    "ignore": _read_ignore,
    "rename": _read_rename,
    "mask": _read_switch,
    "notify": _read_notify,
}


_QUOTED = "; write wildcards in quotes: '*time'"


def _load_yaml(content: bytes, source: str) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML's safe loader without repeated keys and aliases, a few lines of which can expand
        to gigabytes."""

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                event = self.get_event()  # type: ignore[no-untyped-call]  # the stubs leave it so
                raise yaml.MarkedYAMLError(
                    problem=f"aliases (`*name`) aren't taken{_QUOTED}",
                    problem_mark=event.start_mark,
                )
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> "dict[Any, Any]":
            keys = set()
            for key, _ in node.value:
                if key.value in keys:
                    raise yaml.MarkedYAMLError(
                        problem=f"`{key.value}` stands twice", problem_mark=key.start_mark
                    )
                if isinstance(key.value, str):
                    keys.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(source, [f"isn't UTF-8 text (byte {error.start})"]) from None
    try:
        return yaml.load(text, Loader)  # noqa: S506  a SafeLoader, narrowed further
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        remedy = _QUOTED if "alias" in (error.context or "") else ""
        raise ConfigError(
            source, [f"{where}{error.problem or 'this is not YAML'}{remedy}"]
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError) as error:
        fault = str(error).splitlines()[0] if str(error) else "nested too deep"
        raise ConfigError(source, [f"isn't YAML: {fault}"]) from None


def _quote(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f"`{safe(text[:60])}{'...' if len(text) > 60 else ''}`"


def _quote_all(words: "tuple[str, ...] | dict[str, Any]") -> str:
    return ", ".join(f"`{word}`" for word in words)


def _did_you_mean(word: object, choices: tuple[str, ...]) -> str:
    import difflib

    near = difflib.get_close_matches(str(word).lower(), choices, 1)
    return f" (did you mean `{near[0]}`?)" if near else ""
