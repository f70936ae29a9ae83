"""Capture beside a job, as its user: relay, renderer, classifier and spool. Imports no other package.

Programs import this package only: `emit` and `event` let a job print records and events; the rest
reads captured jobs (docs/python-api.md):

from logshipper import Store
with Store() as store:
    for job in store.jobs(state="completed", filter="loss<0.3"):
        print(job.job_id, job.metrics("epoch", "loss"))
"""

TYPE_CHECKING = False  # typing itself costs more than all else that a captured job's start imports
if TYPE_CHECKING:
    from logshipper.emitting import emit, event
    from logshipper.errors import ConfigError, LogshipperError, QueryError, StoreError, UnknownJob
    from logshipper_observe.analytics.analytics import (
        Report,
        available_nodes,
        throughput_report,
        utilization_report,
    )
    from logshipper_observe.analytics.batch_jobs import BatchJob
    from logshipper_observe.api.event_log import EventLog, EventQuery, StateEvent
    from logshipper_observe.api.job_api import (
        Capture,
        Event,
        Job,
        JobSummary,
        KeyStats,
        Line,
        Record,
        XChoice,
    )
    from logshipper_observe.api.store_api import Jobs, Match, Store, TimedOut
    from logshipper_observe.api.tables import Columns, Rollup, Rollups
    from logshipper_observe.model.job_info import Iterations, JobInfo, Metric
    from logshipper_observe.query.asked import UnknownKey
    from logshipper_observe.query.info_lookup import Found

__version__ = "0.1.0"
__all__ = [
    "BatchJob",
    "Capture",
    "Columns",
    "ConfigError",
    "Event",
    "EventLog",
    "EventQuery",
    "Found",
    "Iterations",
    "Job",
    "JobInfo",
    "JobSummary",
    "Jobs",
    "KeyStats",
    "Line",
    "LogshipperError",
    "Match",
    "Metric",
    "QueryError",
    "Record",
    "Report",
    "Rollup",
    "Rollups",
    "StateEvent",
    "Store",
    "StoreError",
    "TimedOut",
    "UnknownJob",
    "UnknownKey",
    "XChoice",
    "available_nodes",
    "emit",
    "event",
    "throughput_report",
    "utilization_report",
]

_MODULES = {
    "logshipper.emitting": "emit event",
    "logshipper.errors": "ConfigError LogshipperError QueryError StoreError UnknownJob",
    "logshipper_observe.analytics.analytics": "Report available_nodes throughput_report utilization_report",
    "logshipper_observe.query.asked": "UnknownKey",
    "logshipper_observe.analytics.batch_jobs": "BatchJob",
    "logshipper_observe.api.event_log": "EventLog EventQuery StateEvent",
    "logshipper_observe.query.info_lookup": "Found",
    "logshipper_observe.api.job_api": "Capture Event Job JobSummary KeyStats Line Record XChoice",
    "logshipper_observe.model.job_info": "Iterations JobInfo Metric",
    "logshipper_observe.api.store_api": "Jobs Match Store TimedOut",
    "logshipper_observe.api.tables": "Columns Rollup Rollups",
}


def __getattr__(name: str) -> object:
    """Import names on demand: every captured job waits for this module's imports."""
    for module, names in _MODULES.items():
        if name in names.split():
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    own = [name for name in globals() if name.startswith("__")]  # such as __version__
    return sorted({*own, *__all__})
