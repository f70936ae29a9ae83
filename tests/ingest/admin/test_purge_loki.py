"""A real Loki: purging removes a secret in every form, and nothing else."""

import json
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logshipper_ingest.admin import purge_loki
from logshipper_ingest.admin.purge_loki import LokiPurge
from logshipper_ingest.loki.client import LokiClient, Result
from logshipper_ingest.servers.logql import quoted
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.spool.purge_pattern import LinePattern, pattern_of
from tests.servers.running import LokiServer
from tests.tools.stores.node_agents import NodeAgent, entries_of
from tests.tools.stress.secret_oracle import SECRETS, Secret, has

CLUSTER = "forms"
OTHER = "something else"
AT_ONCE = 4


def lines_with(secret: Secret) -> list[str]:
    text, printed = secret
    return [
        f"a line: {printed}",
        f"{printed} begins it",
        json.dumps({"step": 1, "token": printed}),
        json.dumps({"step": 1, "token": printed}, ensure_ascii=False),
        json.dumps({text: 1}),
        json.dumps({"event": "odd", "data": {"of": [text, json.dumps({"within": printed})]}}),
    ]


def lines_without(secret: Secret) -> list[str]:
    beginning = secret.text[:4]
    return [
        OTHER,
        f"\x1b[31m{OTHER}\x1b[0m",
        json.dumps({"a": f"{beginning}\\ \u00e4"}),
        f"C:\\{beginning}",
        '{"a": "\\\\"}',
    ]


def push(loki: LokiServer, job_id: str, lines: list[str], *, step: str = "") -> None:
    begin_ns = time.time_ns() - 60 * 10**9
    metadata = {"job_id": job_id, **({"step": step} if step else {})}
    entries = [Entry(begin_ns + at, line, metadata) for at, line in enumerate(lines)]
    with LokiClient(loki.url) as client:
        for kind in ("log", "event"):
            client.push(
                {"service_name": "logshipper", "cluster": CLUSTER, "kind": kind, "host": "n1"},
                entries,
            )


def test_a_secret_is_gone_in_every_form(lokis: None, tmp_path: Path) -> None:
    """Each secret has its own job and agent, so the commands wait side by side."""
    job_of = {name: uuid.uuid4().hex[:12] for name in SECRETS}
    with LokiServer(deletes=True) as loki, ThreadPoolExecutor(AT_ONCE) as pool:
        for name, secret in SECRETS.items():
            push(loki, job_of[name], lines_with(secret) + lines_without(secret))
            push(loki, "neighbour", lines_with(secret))

        def purge(name: str, *options: str) -> "subprocess.CompletedProcess[str]":
            agent = NodeAgent(tmp_path / job_of[name], loki.url, cluster=CLUSTER)
            agent.state.mkdir(exist_ok=True)
            words = ("--job", job_of[name], "--fixed", SECRETS[name].text, "--since", "1h")
            return agent.call("purge", *words, *options)

        def purge_unheard(name: str) -> None:
            dry_run = purge(name, "--dry-run", "--json")
            lines = 2 * len(lines_with(SECRETS[name]))
            assert json.loads(dry_run.stdout)["lines"]["loki"] == lines, (name, dry_run.stdout)
            assert purge(name, "--yes", "--wait", "1s").returncode == 3, (
                "its parts haven't heard of it"
            )

        def purge_heard(name: str) -> None:
            done = purge(name, "--yes", "--wait", "30s", "--json")
            assert done.returncode == 0, (name, done.stderr)

        list(pool.map(purge_unheard, SECRETS))
        loki.stop()
        loki.start()
        list(pool.map(purge_heard, SECRETS))
        with LokiClient(loki.url) as client:
            entries = entries_of(client, CLUSTER)
    for name, secret in SECRETS.items():
        rest = [entry.line for entry in entries if entry.metadata["job_id"] == job_of[name]]
        assert not any(has(secret.text, line) for line in rest)
        assert sorted(rest) == sorted(2 * lines_without(secret)), name
    assert sum(entry.metadata["job_id"] == "neighbour" for entry in entries) == 2 * 6 * len(SECRETS)


def test_what_stands_with_every_line_is_said(lokis: None, tmp_path: Path) -> None:
    with LokiServer(deletes=True) as loki:
        agent = NodeAgent(tmp_path, loki.url, cluster=CLUSTER)
        agent.state.mkdir()
        push(loki, "job1", [OTHER], step="hunter2")
        done = agent.call(
            "purge", "--job", "job1", "--fixed", "hunter2", "--since", "1h", "--yes", "--wait", "1s"
        )
    assert done.returncode == 3
    assert "the job's step has it, which stands with every line in Loki" in done.stderr


class Answering:
    """A Loki that answers entry queries from these lines."""

    answer_date_ns = None

    def __init__(self, lines: list[str], pattern: LinePattern) -> None:
        self._lines = lines
        self._pattern = pattern

    def close(self) -> None:
        """Do nothing, without a connection."""

    def query(self, logql: str, *, time_ns: int | None = None) -> list[Result]:
        return []

    def entries(self, logql: str, begin_ns: int, end_ns: int) -> Iterator[Entry]:
        if "event" not in logql:
            yield from (
                Entry(begin_ns, line)
                for line in self._lines
                if not self._pattern.python.search(line)
            )

    def delete(self, logql: str, begin_ns: int, end_ns: int) -> str:
        raise AssertionError


def test_requests_are_few_and_short_whatever_forms_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pattern = pattern_of("g\u00e4h[0-9]*", None)
    lines = [json.dumps(f"g\u00e4h{number}") for number in range(3000)]
    purge = LokiPurge(Answering([*lines, *lines], pattern), "c", "job1", pattern)
    span = purge.look(60)
    assert span.lines == 6000
    assert 2 < len(span.queries) < 30
    assert max(map(len, span.queries)) < 2 * purge_loki.MAX_QUERY_CHARS
    monkeypatch.setattr(purge_loki, "MAX_REQUESTS", 2)
    assert len(purge.look(60).queries) <= 4
    (words,) = purge.still_there()
    assert "in too many forms, or too long ones" in words


def test_an_anchored_pattern_names_whole_lines() -> None:
    pattern = pattern_of("^g\u00e4h\\b", None)
    purge = LokiPurge(
        Answering(["g\\u00e4h (x)", "a g\\u00e4h (x)"], pattern), "c", "job1", pattern
    )
    (query,) = purge.look(60).queries[1:]
    assert query.endswith(
        f" |~ {quoted('^(?:' + re.escape(chr(92).join(('g', 'u00e4h (x)'))) + ')$')}"
    )
