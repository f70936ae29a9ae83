"""LogQL out of values that may hold anything (https://grafana.com/docs/loki/latest/query/).
Pure."""

import json
import re
from collections.abc import Collection, Iterable, Mapping

SERVICE = "logshipper"
MAX_HOSTS = 200  # named in a query; more of them would only make it long


def quoted(text: str) -> str:
    """Quote a string for LogQL.

    JSON's escapes are valid in Go. Half surrogate pairs, which Go refuses, become `?`.
    """
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)


def any_of(values: Iterable[str]) -> str:
    """A regular expression (RE2) that matches just these values as a whole."""
    return "|".join(re.escape(value) for value in values)


def selector(
    kinds: Collection[str],
    *,
    cluster: str | None = None,
    hosts: Collection[str] = (),
    streams: Collection[str] = (),
    shard: str = "",
) -> str:
    """Return `{...}` for logshipper's streams.

    cluster: None selects all; hosts, streams: empty selects all, and "" selects streams without
    that label; shard: a job's, "" selects all. Streams without a shard belong to each.
    """
    matchers = [f"service_name={quoted(SERVICE)}", matcher("kind", kinds)]
    if cluster is not None:
        matchers.append(matcher("cluster", [cluster]))
    if hosts and len(hosts) <= MAX_HOSTS:
        matchers.append(matcher("host", hosts))
    if streams:
        matchers.append(matcher("stream", streams))
    if shard and "log" in kinds:
        matchers.append(matcher("job_shard", [shard, ""]))
    return "{" + ",".join(matchers) + "}"


def matcher(name: str, values: Collection[str]) -> str:
    """Return `name="value"` for a selector, or a match of several values; valid in PromQL, too."""
    ordered = sorted(set(values))
    if len(ordered) == 1:
        return f"{name}={quoted(ordered[0])}"
    return f"{name}=~{quoted(any_of(ordered))}"


def with_metadata(values: Mapping[str, str]) -> str:
    """Return filters on structured metadata, to append to a selector."""
    return "".join(f" | {name}={quoted(value)}" for name, value in values.items())


def with_any_metadata(name: str, values: Collection[str]) -> str:
    """Return a filter that keeps entries with one of these values of structured metadata."""
    return f" | {matcher(name, values)}"


def with_event(names: Iterable[str]) -> str:
    """Return a filter for lines that may be one of these events.

    Loki matches the text; the reader parses the line.
    """
    return f" |~ {quoted(_event(names))}"


def without_event(names: Iterable[str]) -> str:
    """Leaves out lines that begin with one of these events."""
    return f" !~ {quoted('^[{]' + _event(names))}"


def _event(names: Iterable[str]) -> str:
    return f'"event": ?"({any_of(names)})"'
