"""What the shell completes: jobs and keys of the local store. Bounded, and silent whatever goes wrong; with
`--from loki` nothing, as no network holds up the command line."""

import argparse

from observe.opening import is_from_loki

_JOBS = 200
_TAKE_IN_SECS = 0.3


def jobs(prefix: str, parsed_args: argparse.Namespace, **_: object) -> dict[str, str]:
    """Ids, names and `last`, each with a few words about it, as shells show them."""
    try:
        return {} if is_from_loki(parsed_args) else _jobs(prefix, parsed_args)
    except Exception:
        return {}  # a traceback would land in the midst of the user's command line


def jobs_in_loki(**_: object) -> list[str]:
    """Where jobs are in Loki only: what can be said without asking it."""
    return ["last"]


def properties(**_: object) -> list[str]:
    """What jobs can be sorted by, but for tags and keys."""
    from observe.properties import PROPERTIES

    return sorted(PROPERTIES)


def keys(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Keys of the job that is named on the command line; after a comma, the next one."""
    try:
        return [] if is_from_loki(parsed_args) else _keys(prefix, parsed_args)
    except Exception:
        return []  # likewise


def _jobs(prefix: str, args: argparse.Namespace) -> dict[str, str]:
    from observe.opening import opened_local
    from observe.words import safe

    found: dict[str, str] = {}
    with opened_local(_with_store(args)) as store:
        if store is None:
            return {}
        store.take_in(deadline_secs=_TAKE_IN_SECS)
        newest = store.jobs()[:_JOBS]
        if newest:
            found["last"] = f"{safe(newest[0].name)} ({newest[0].state})"
        for job in newest:
            found[job.job_id] = f"{safe(job.name)} ({job.state})"
        for job in newest:
            if job.name.isprintable():
                found.setdefault(job.name, f"{job.job_id} ({job.state})")
    return {word: about for word, about in found.items() if word.startswith(prefix)}


def _keys(prefix: str, args: argparse.Namespace) -> list[str]:
    from observe.opening import opened_local

    before, comma, _ = prefix.rpartition(",")
    name = args.job if hasattr(args, "job") else args.jobs[0]
    with opened_local(_with_store(args)) as store:
        if store is None:
            return []
        with store.open(store.resolve(name)) as reader:
            known = reader.keys()
    words = [f"{before}{comma}{key.key}" for key in known]
    return [word for word in words if word.startswith(prefix)]


def _with_store(args: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(store=getattr(args, "store", None))
