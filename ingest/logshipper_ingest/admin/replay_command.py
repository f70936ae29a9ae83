"""The command `logshipper-agent replay`: options, counts and exit code."""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from logshipper.errors import LogshipperError
from logshipper.safe_text import safe_lines
from logshipper_ingest.admin.replay import Replayer, ReplayResult, ReplaySelection
from logshipper_ingest.agent.sink_parts import ClosablePushClient, push_client
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.sink_config import Server, SinkConfig, is_loki
from logshipper_ingest.console.console_script import warn
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.console.stop_signals import set_by_signals
from logshipper_ingest.console.text_table import plural, printed_table
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.shipping.sink import PushClient
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.state.sink_states import select_sinks

EXIT_REFUSED = 3
_SCHEMA = "logshipper-agent.replay/1"
_WORDS = 200  # longest printed message of Loki


def call(options: argparse.Namespace, config: AgentConfig) -> int:
    since_ns = time.time_ns() - int(options.since * 1e9) if options.since else 0
    selection = ReplaySelection(options.job, options.reason, since_ns)
    sinks = select_sinks(config, options.sink)
    if options.dry_run:
        return _dry_run(sinks, selection, as_json=options.json)
    stops = {sink.label: threading.Event() for sink in sinks}
    tallies: dict[str, ReplayResult] = {}
    errors: list[LogshipperError] = []
    with set_by_signals(stops.values(), (signal.SIGINT, signal.SIGTERM)):
        for sink in sinks:
            tally, error = _replay(options, sink, selection, stops[sink.label])
            tallies[sink.label] = tally
            errors += [error] if error is not None else []
    _print_tallies(tallies, as_json=options.json)
    for earlier_error in errors[:-1]:
        warn(str(earlier_error))
    if errors:
        raise errors[-1]
    untried = {name: tally for name, tally in tallies.items() if tally.untried}
    for name, tally in untried.items():
        of_sink = f"{name}: " if len(tallies) > 1 else ""
        reason = tally.stop_reason or "stopped"
        warn(f"{of_sink}{reason}; {tally.untried} entries weren't tried")
    if untried:
        return 1
    return EXIT_REFUSED if any(tally.refusals for tally in tallies.values()) else 0


def _replay(
    options: argparse.Namespace,
    config: SinkConfig[Server],
    selection: ReplaySelection,
    stop: threading.Event,
) -> tuple[ReplayResult, LogshipperError | None]:
    """Replay to one sink. An early end does not stop the others."""
    title = f"Replaying to {config.label}" if config.name else "Replaying"
    bar = Bar(title, "{:,}".format, " entries")
    clients: list[LokiClient] = []
    pushes: list[ClosablePushClient] = []

    def push() -> PushClient:
        pushes.append(push_client(config, say))
        return pushes[-1]

    def client(tenant: str = "") -> LokiClient:
        access = replace(config.server.access, tenant=tenant) if tenant else config.server.access
        clients.append(LokiClient(access))
        return clients[-1]

    def say(words: str) -> None:
        bar.clear()
        warn(words)

    # InfluxDB merges repeated points; OTLP has no queries
    ask = client if is_loki(config) and not options.no_query else None
    replayer = Replayer(config, selection, push, ask, stop, say, bar, options.timeout)
    error: LogshipperError | None = None
    try:
        replayer.run()
    except LogshipperError as raised:
        error = raised
    finally:
        bar.clear()
        for open_client in [*clients, *pushes]:
            open_client.close()
    return replayer.tally, error


def _print_tallies(tallies: Mapping[str, ReplayResult], *, as_json: bool) -> None:
    if as_json:
        document = {"schema": _SCHEMA, **_as_json(list(tallies.values()))}
        if len(tallies) > 1:
            document["sinks"] = {name: _as_json([tally]) for name, tally in tallies.items()}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    for name, tally in tallies.items():
        of_sink = f"{name}: " if len(tallies) > 1 else ""
        sys.stdout.write(
            f"{of_sink}{plural(tally.delivered, 'entry')} delivered, "
            f"{tally.in_loki} were in Loki already, "
            f"{tally.refusals.total()} refused again, {tally.untried} not tried\n"
        )
        for reason, count in tally.refusals.most_common():
            sys.stdout.write(safe_lines(f"  {count} {reason}: {tally.words[reason][:_WORDS]}\n"))


def _as_json(tallies: Sequence[ReplayResult]) -> dict[str, object]:
    """Return the sums over all sinks."""
    return {
        "chosen": sum(tally.total for tally in tallies),
        "delivered": sum(tally.delivered for tally in tallies),
        "there": sum(tally.in_loki for tally in tallies),
        "refused": sum((tally.refusals for tally in tallies), Counter()),
        "words": dict(ChainMap(*(tally.words for tally in reversed(tallies)))),
        "left": sum(tally.untried for tally in tallies),
    }


def _dry_run(
    sinks: Sequence[SinkConfig[Server]], selection: ReplaySelection, *, as_json: bool
) -> int:
    counts: Counter[tuple[str, str, str]] = Counter()
    words: dict[tuple[str, str, str], str] = {}
    for sink in sinks:
        folder = os.path.join(sink.folder, quarantine_files.FOLDER)
        for name in quarantine_files.names(folder):
            for line in quarantine_files.read_lines(folder, name):
                entry = line.entry
                if entry is not None and selection.has(entry):
                    of = (entry.job_id, entry.reason, sink.label)
                    counts[of] += 1
                    words[of] = entry.words
    if as_json:
        groups = [
            {"job_id": of[0], "reason": of[1], "sink": of[2], "entries": count, "words": words[of]}
            for of, count in counts.items()
        ]
        sys.stdout.write(json.dumps({"schema": _SCHEMA, "chosen": groups}, indent=2) + "\n")
    elif not counts:
        sys.stdout.write("nothing of that is in the quarantine\n")
    else:
        columns = 3 if len(sinks) > 1 else 2
        heading = (*("JOB", "REASON", "LOKI")[:columns], "ENTRIES", "LOKI'S WORDS")
        groups_by_size = counts.most_common()
        rows = [(*of[:columns], str(count), words[of][:_WORDS]) for of, count in groups_by_size]
        sys.stdout.write(printed_table([heading, *rows], right={columns}))
    return 0
