"""`logshipper-agent replay` as it is called: options in, counts and an exit code out."""

import _thread
import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from ingest import quarantine_files
from ingest.agent_config import AgentConfig
from ingest.loki import Client
from ingest.progress_bar import Bar
from ingest.replay import Chosen, Replayer, Tally
from ingest.text_table import printed_table
from logshipper.errors import LogshipperError

EXIT_REFUSED = 3
_SCHEMA = "logshipper-agent.replay/1"
_WORDS = 200  # characters of Loki's that are shown


def call(options: argparse.Namespace, config: AgentConfig) -> int:
    since_ns = time.time_ns() - int(options.since * 1e9) if options.since else 0
    chosen = Chosen(options.job, options.reason, since_ns)
    if options.dry_run:
        return _dry_run(config, chosen, as_json=options.json)
    stop = threading.Event()
    bar = Bar("Replaying", "{:,}".format, " entries")
    clients: list[Client] = []

    def client(tenant: str = "") -> Client:
        access = replace(config.loki.access, tenant=tenant) if tenant else config.loki.access
        clients.append(Client(access))
        return clients[-1]

    def say(words: str) -> None:
        bar.clear()
        sys.stderr.write(f"logshipper-agent: {words}\n")

    ask = None if options.no_query else client
    replayer = Replayer(config, chosen, client, ask, stop, say, bar, options.timeout)
    error: LogshipperError | None = None
    try:
        with _stopped_by_signals(stop):
            replayer.run()
    except LogshipperError as raised:
        error = raised
    finally:
        bar.clear()
        for one in clients:
            one.close()
    tally = replayer.tally
    _print_tally(tally, as_json=options.json)
    if error is not None:
        raise error
    if tally.left:
        sys.stderr.write(f"logshipper-agent: {tally.why or 'stopped'}; {tally.left} entries weren't tried\n")
        return 1
    return EXIT_REFUSED if tally.refused else 0


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """What is delivered leaves the quarantine before it ends."""

    def on_signal(signo: int, frame: FrameType | None) -> None:
        _thread.start_new_thread(stop.set, ())  # another thread: what was interrupted here may hold its lock

    before = {signo: signal.signal(signo, on_signal) for signo in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signo, handler in before.items():
            signal.signal(signo, handler)


def _print_tally(tally: Tally, *, as_json: bool) -> None:
    if as_json:
        document = {
            "schema": _SCHEMA,
            "chosen": tally.chosen,
            "delivered": tally.delivered,
            "there": tally.there,
            "refused": dict(tally.refused),
            "words": tally.words,
            "left": tally.left,
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    sys.stdout.write(
        f"{tally.delivered} entries delivered, {tally.there} were in Loki already, {tally.refused.total()} refused "
        f"again, {tally.left} not tried\n"
    )
    for reason, count in tally.refused.most_common():
        sys.stdout.write(f"  {count} {reason}: {tally.words[reason][:_WORDS]}\n")


def _dry_run(config: AgentConfig, chosen: Chosen, *, as_json: bool) -> int:
    folder = os.path.join(config.agent.state_dir, quarantine_files.FOLDER)
    counts: Counter[tuple[str, str]] = Counter()
    words: dict[tuple[str, str], str] = {}
    for name in quarantine_files.names(folder):
        for line in quarantine_files.read_lines(folder, name):
            entry = line.entry
            if entry is not None and chosen.has(entry):
                of = (entry.job_id, entry.reason)
                counts[of] += 1
                words[of] = entry.words
    if as_json:
        found = [
            {"job_id": of[0], "reason": of[1], "entries": count, "words": words[of]} for of, count in counts.items()
        ]
        sys.stdout.write(json.dumps({"schema": _SCHEMA, "chosen": found}, indent=2) + "\n")
    elif not counts:
        sys.stdout.write("nothing of that is in the quarantine\n")
    else:
        heading = ("JOB", "REASON", "ENTRIES", "LOKI'S WORDS")
        rows = [(*of, str(count), words[of][:_WORDS]) for of, count in counts.most_common()]
        sys.stdout.write(printed_table([heading, *rows], right={2}))
    return 0
