"""`logshipper-grafana`: brings the dashboards into a Grafana, and tests whether they find their
data there; connects options with functions."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logshipper import __version__
from logshipper.errors import ConfigError
from logshipper.safe_text import safe_lines
from logshipper_ingest.console.console_script import run_command
from logshipper_ingest.servers.server_access import ServerAccess

if TYPE_CHECKING:
    from logshipper_grafana.tool.apply import Step

_CHANGES_WAIT = 3
_EXAMPLES = """examples:
  logshipper-grafana apply --url https://grafana.example.org --token-file token --dry-run    what would change?
  logshipper-grafana apply --url https://grafana.example.org --token-file token
  logshipper-grafana check --url https://grafana.example.org --token-file token
"""
_APPLY_EXAMPLES = """Twice the same changes nothing the second time. A data source is made where its server's address
is given, and else left as it is. What somebody changed in Grafana stays: a dashboard that was saved by another than
this command is refused, options of a data source are kept; --dry-run shows the difference, --force puts the code's in
its place.

The token is that of a service account with the role Admin (Editor, where Grafana has the data sources already). A
token or password in a file that everybody may read is refused.

exit codes: 0 done, or nothing to be done; 1 something was refused, or went wrong; 2 wrong usage; 3 with --dry-run:
nothing is wrong, and something would change

examples:
  logshipper-grafana apply --url https://grafana.example.org --token-file ~/grafana.token \\
      --loki-url http://loki.example.org:3100 --prometheus-url http://prometheus.example.org:9090
  logshipper-grafana apply --url https://grafana.example.org --token-file ~/grafana.token --dry-run --prune
  logshipper-grafana apply --url http://localhost:3000 --username admin --password-file ~/grafana.password
"""
_CHECK_EXAMPLES = """It asks through Grafana, as the pages do, and changes nothing: are the data sources there and of
use, do Loki's limits and labels fit, does Prometheus scrape the agents, does each query of each page answer, for the
newest captured job?

exit codes: 0 all is well, 1 something is wrong (each with its fix), 2 wrong usage

examples:
  logshipper-grafana check --url https://grafana.example.org --token-file ~/grafana.token
  logshipper-grafana check --url https://grafana.example.org --token-file ~/grafana.token --job 4711
  logshipper-grafana check --url https://grafana.example.org --token-file ~/grafana.token --json \\
      | jq -r '.findings[] | select(.level == "wrong")'
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code: 0, 1 for an error, 2 for wrong usage (argparse), 3
    (see above)."""
    return run_command(build_parser(), arguments)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="logshipper-grafana",
        description="Brings the dashboards into a Grafana, and checks what they need there.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str, description: str, examples: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(
            name,
            help=summary,
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_access(subparser)
        return subparser

    apply = add(
        "apply",
        "bring folder, data sources and dashboards into a Grafana",
        "Brings folder, data sources and dashboards into a Grafana.",
        _APPLY_EXAMPLES,
    )
    apply.add_argument(
        "--folder",
        default="logshipper",
        metavar="NAME",
        help="title or uid of the dashboards' (default: %(default)s)",
    )
    _add_text(apply, "--loki-url", "URL", "Loki, as Grafana reaches it")
    _add_text(apply, "--prometheus-url", "URL", "Prometheus, as Grafana reaches it")
    switches = {
        "--dry-run": "change nothing; show a unified diff of what would be",
        "--prune": "remove dashboards of ours in the folder that this version no longer has",
        "--force": "also where somebody changed it in Grafana",
    }
    for option, words in switches.items():
        apply.add_argument(option, action="store_true", help=words)
    apply.set_defaults(call=_apply)
    check = add(
        "check",
        "do the dashboards find in a Grafana what they need?",
        "Says whether the dashboards find in a Grafana what they need, and what to fix.",
        _CHECK_EXAMPLES,
    )
    _add_text(check, "--loki-uid", "UID", "the data source (default: logshipper-loki)")
    _add_text(check, "--prometheus-uid", "UID", "likewise (default: logshipper-prometheus)")
    _add_text(check, "--job", "JOB", "id of the job to ask for (default: the newest)")
    check.add_argument("--json", action="store_true", help="for programs")
    check.set_defaults(call=_check)
    return parser


def _add_text(parser: argparse._ActionsContainer, option: str, metavar: str, words: str) -> None:
    parser.add_argument(option, default="", metavar=metavar, help=words)


def _add_access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", required=True, metavar="URL", help="Grafana's address, before /api"
    )
    credentials = parser.add_mutually_exclusive_group(required=True)
    _add_text(credentials, "--token-file", "FILE", "holds a service account's token")
    _add_text(credentials, "--username", "NAME", "instead: a user, with --password-file")
    _add_text(parser, "--password-file", "FILE", "holds the user's password")
    _add_text(parser, "--ca-file", "FILE", "PEM of the CA that signed Grafana's certificate")
    parser.add_argument(
        "--timeout-secs",
        type=float,
        default=30.0,
        metavar="SECS",
        help="for each answer (default: %(default)g)",
    )


def _access(options: argparse.Namespace) -> ServerAccess:
    """Raises ConfigError with all that is wrong with the options."""
    from logshipper_grafana.tool.server import as_options

    def path(name: str) -> str:
        return os.path.abspath(os.path.expanduser(name)) if name else ""

    access = ServerAccess(
        url=options.url,
        username=options.username,
        password_file=path(options.password_file),
        token_file=path(options.token_file),
        ca_file=path(options.ca_file),
        timeout_secs=options.timeout_secs,
    )
    problems = [_problem("--url", problem) for problem in access.problems("url")]
    for option in ("loki_url", "prometheus_url"):
        address = ServerAccess(url=getattr(options, option, ""))
        problems += [
            _problem(f"--{option.replace('_', '-')}", problem)
            for problem in address.problems("url")
        ]
    if problems:
        raise ConfigError(options.command, [as_options(problem) for problem in problems])
    return access


def _problem(option: str, problem: str) -> str:
    """Return a problem of ServerAccess, whose table is called `url` here, with the option of the
    address."""
    words = problem.removeprefix("[url] ")
    if option != "--url" and "credentials go" in words:
        return f"{option}: credentials belong to the data source's page in Grafana, not into the address"
    return f"{option}{words.removeprefix('url')}" if words.startswith("url:") else words


def _apply(options: argparse.Namespace) -> int:
    # late: --help and completion need none of it
    from logshipper_grafana.tool.apply import CHANGES, Step, Wish, apply_steps
    from logshipper_grafana.tool.server import GrafanaServer

    addresses = {"loki": options.loki_url, "prometheus": options.prometheus_url}
    wish = Wish(options.folder, addresses, options.dry_run, options.prune, options.force)
    steps: list[Step] = []
    with GrafanaServer(_access(options)) as grafana:
        for step in apply_steps(grafana, wish):
            steps.append(step)
            _show(step, dry_run=options.dry_run)
    counts = Counter(step.done for step in steps)
    changes = sum(counts[done] for done in CHANGES)
    order = (*CHANGES, "unchanged", "kept", "refused")
    words = ", ".join(f"{counts[done]} {done}" for done in order if counts[done])
    sys.stdout.write(f"{'would be: ' if options.dry_run else ''}{words}\n")
    if not changes and not counts["refused"]:
        sys.stdout.write("nothing to change\n")
    if counts["refused"]:
        return 1
    return _CHANGES_WAIT if changes and options.dry_run else 0


def _show(step: "Step", *, dry_run: bool) -> None:
    text = f"{step.done:9} {step.subject}{': ' if step.words else ''}{step.words}\n"
    if step.diff and (dry_run or step.done == "refused"):
        text += step.diff
    sys.stdout.write(safe_lines(text))  # others' content in Grafana is untrusted
    sys.stdout.flush()


def _check(options: argparse.Namespace) -> int:
    from logshipper_grafana.tool.check import CheckScope, check
    from logshipper_ingest.checks.findings import as_document, exit_code, print_findings

    scope = CheckScope(options.loki_uid, options.prometheus_uid, options.job)
    findings = check(_access(options), scope)
    if options.json:
        import json

        sys.stdout.write(json.dumps(as_document(findings), indent=2) + "\n")
    else:
        print_findings(findings)
    return exit_code(findings)
