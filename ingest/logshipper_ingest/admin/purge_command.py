"""`logshipper-agent purge`: removes a printed secret, or a whole job, from all its places. On a
node: spool, quarantine, Loki. For a user: spool and store."""

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack

from logshipper.errors import ConfigError, QueryError, UnknownJob
from logshipper.safe_text import safe, safe_lines
from logshipper_ingest.admin.purge_loki import LokiPurge
from logshipper_ingest.admin.purge_node import LokiPlace, NodePurge, PurgeReport
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.sink_config import is_influxdb, is_otlp
from logshipper_ingest.console.console_script import warn
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.job import NAME
from logshipper_ingest.servers.server_access import file_problems
from logshipper_ingest.spool.purge_pattern import EVERY_LINE, LinePattern, pattern_of
from logshipper_ingest.sqlite_file import UnwritableError
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.store.local_store import LocalStore

EXIT_LEFT = 3
EXIT_DECLINED = 1
EXIT_USAGE = 2
_LOKI_POLL_SECS = 2.0
# in a row that must show nothing: one of three Lokis is passed over in 1 of 130 cases where chance
# decides which one answers, in none where they take turns
_LOOKS = 12


def call_store(options: argparse.Namespace, root: str) -> int:
    """Purge a user's own store. Raises LogshipperError."""
    pattern = _read_pattern(options)
    report = PurgeReport(options.job, options.dry_run)
    with LocalStore(root) as store:
        store.ingest(job_id=options.job)
        report.lines["store"] = store.purge(options.job, pattern, dry_run=True).lines
        if not any(job.job_id == options.job for job in store.jobs()):
            raise UnknownJob(options.job, f"no job has the id {options.job!r}")
        code = _may(options, report, pattern)
        if code is not None:
            return code
        if pattern is EVERY_LINE:
            for path in store.remove(options.job):
                report.left.append(f"{path}: was moved aside as damaged: remove it, too")
        else:
            try:
                store.purge(options.job, pattern, dry_run=False)
            except UnwritableError as error:
                report.left.append(str(error))
            # search all places again
            if (hits := store.purge(options.job, pattern, dry_run=True)).lines:
                place = f"{plural(hits.lines, 'line')} of {', '.join(hits.files)}"
                report.left.append(f"{place} still have it: call this again")
            report.left += store.not_purged(options.job, pattern)
    return _print_report(report, as_json=options.json)


def call_node(options: argparse.Namespace, config: AgentConfig) -> int:
    """Purge a node. Raises LogshipperError."""
    pattern = _read_pattern(options)
    certificate = _own_certificate(options)
    purge = NodePurge(config, options.job, pattern)
    with ExitStack() as stack:
        stack.enter_context(quarantine_files.rewriter_lock(config.agent.state_dir))
        report = purge.look(dry_run=options.dry_run)
        clients = {} if options.no_loki else purge.lokis(options.user, certificate)
        lokis = {}
        for place, client in clients.items():
            stack.enter_context(client)
            lokis[place] = LokiPurge(client, config.agent.cluster, options.job, pattern)
        if lokis:
            report.lines["loki"] = sum(loki.look(options.since).lines for loki in lokis.values())
        code = _may(options, report, pattern)
        if code is not None:
            return code
        purge.purge(report, options.wait)
        _delete(lokis, report, options.wait)
        report.left += _elsewhere(lokis, config.agent.host) + _in_other_sinks(config, options.job)
    return _print_report(report, as_json=options.json)


def _delete(lokis: dict[LokiPlace, LokiPurge], report: PurgeReport, wait_secs: float) -> None:
    """Delete in each Loki, even if one refuses."""
    pending: list[LokiPurge] = []
    for place, loki in lokis.items():
        try:
            report.requests[place.text] = ", ".join(loki.delete())
            pending.append(loki)
        except QueryError as error:
            report.left.append(str(error))
    if not pending:
        report.lines.pop("loki", None)
        return
    report.lines["loki"] = sum(loki.span.lines for loki in pending)
    try:
        _wait_until_gone(pending, report, wait_secs)
    except QueryError as error:
        report.left.append(str(error))


def _read_pattern(options: argparse.Namespace) -> LinePattern:
    if not NAME.fullmatch(options.job):
        raise ConfigError("--job", [f"{options.job!r} is no job id"])
    return pattern_of(options.grep, options.fixed)


def _own_certificate(options: argparse.Namespace) -> dict[str, str]:
    """Return the admin's certificate. It replaces the agent's, which a gateway before Loki may
    limit to pushes."""
    if not options.cert:
        if options.key:
            raise ConfigError("--key", ["needs --cert"])
        return {}
    cert, key = os.path.abspath(options.cert), os.path.abspath(options.key) if options.key else ""
    problems = file_problems("--cert", cert, secret=False) + file_problems(
        "--key", key, secret=True
    )
    if problems:
        raise ConfigError("purge", problems)
    return {"cert_file": cert, "key_file": key}


# ---- what is printed


def _may(options: argparse.Namespace, report: PurgeReport, pattern: LinePattern) -> int | None:
    """Return None to continue, else the exit code."""
    if options.dry_run:
        return _print_report(report, as_json=options.json)
    if options.yes:
        return None
    if sys.stdin is None or not sys.stdin.isatty():
        words = "purge asks only on a terminal; give --yes to purge without being asked"
        warn(words)
        return EXIT_USAGE
    scope = f"{'All' if pattern is EVERY_LINE else 'Lines'} of job {report.job_id}"
    sys.stderr.write(safe(f"{scope}: {_amounts(report)}. Purge them for good? [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return None
    sys.stderr.write("nothing was purged\n")
    return EXIT_DECLINED


def _wait_until_gone(lokis: list[LokiPurge], report: PurgeReport, wait_secs: float) -> None:
    """Wait until no Loki behind the address shows the lines."""
    deadline = time.monotonic() + wait_secs
    bar = Bar("Waiting until Loki shows it no more", "{:,}".format, " lines")
    looks_without = 0
    while True:
        report.shown = sum(loki.count_again() for loki in lokis)
        looks_without = 0 if report.shown else looks_without + 1
        if looks_without == _LOOKS or (report.shown and time.monotonic() > deadline):
            break
        if not report.shown:
            continue
        bar(max(report.lines["loki"] - report.shown, 0), max(report.lines["loki"], report.shown))
        time.sleep(_LOKI_POLL_SECS)
    bar.clear()
    if not report.shown:
        for loki in lokis:
            report.left += loki.still_there()
    else:
        words = (
            f"Loki has taken the request, and still shows {plural(report.shown, 'line')}: its parts"
        )
        words += " hear of it within 5 minutes; lines that are ahead of its clock need another call, 10 minutes later"
        report.left.append(words)


def _in_other_sinks(config: AgentConfig, job_id: str) -> list[str]:
    """Explain the limits: InfluxDB deletes series, not single lines, and writers lack the right;
    OTLP has no request for deletion."""
    where = f"WHERE cluster='{config.agent.cluster}' AND job_id='{job_id}'"
    sentences = []
    for sink in config.sinks:
        if is_influxdb(sink):
            words = "metadata of the job may be there; an admin of it calls `DROP SERIES FROM"
            words += f' "{sink.server.measurement}" {where}` (2.x: influx delete --predicate)'
            sentences.append(f"{sink.label} isn't purged: {words}")
        elif is_otlp(sink):
            words = f"what was sent to {sink.url} may be there; an admin of it removes what has"
            words += f" the resource attribute logshipper.job.id={job_id}"
            sentences.append(f"{sink.label} isn't purged: {words}")
    return sentences


def _elsewhere(lokis: dict[LokiPlace, LokiPurge], host: str) -> list[str]:
    other_hosts = sorted({name for loki in lokis.values() for name in loki.span.hosts} - {host})
    if not other_hosts:
        return []
    words = "what waits in spool and quarantine of other nodes isn't reached; call this there with --no-loki, too"
    return [f"{words}: {', '.join(other_hosts[:20])}{', ...' if len(other_hosts) > 20 else ''}"]


def _amounts(report: PurgeReport) -> str:
    return ", ".join(f"{plural(count, 'line')} in {place}" for place, count in report.lines.items())


def _print_report(report: PurgeReport, *, as_json: bool) -> int:
    if as_json:
        document = {"schema": "logshipper-agent.purge/1", **vars(report)}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.write(f"{'Found' if report.dry_run else 'Purged'}: {_amounts(report)}\n")
        for place, request in report.requests.items():
            of_place = f" of {place}" if place else ""
            sys.stdout.write(safe_lines(f"Loki's delete request{of_place}: {request}\n"))
    for words in report.left:
        warn(words)
    return EXIT_LEFT if report.left else 0
