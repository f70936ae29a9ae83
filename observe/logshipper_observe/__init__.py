"""The reading side: what people and programs ask of captured jobs. As a library: docs/python-api.md.

import observe
with observe.Store.local() as store:
    for job in store.jobs(state="completed", filter="loss<0.3"):
        print(job.job_id, job.metrics("epoch", "loss"))
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logshipper.errors import ConfigError, LogshipperError, QueryError, StoreError, UnknownJob
    from observe.analytics import Report, available_nodes, throughput_report, utilization_report
    from observe.asked import UnknownKey
    from observe.batch_jobs import BatchJob
    from observe.event_log import EventLog, StateEvent
    from observe.info_lookup import Found
    from observe.job_api import Event, Job, Line, Record
    from observe.job_info import Iterations, JobInfo, Metric
    from observe.store_api import Jobs, Store, TimedOut
    from observe.tables import Columns, Rollup

__all__ = [
    "BatchJob",
    "Columns",
    "ConfigError",
    "Event",
    "EventLog",
    "Found",
    "Iterations",
    "Job",
    "JobInfo",
    "Jobs",
    "Line",
    "LogshipperError",
    "Metric",
    "QueryError",
    "Record",
    "Report",
    "Rollup",
    "StateEvent",
    "Store",
    "StoreError",
    "TimedOut",
    "UnknownJob",
    "UnknownKey",
    "available_nodes",
    "throughput_report",
    "utilization_report",
]

_ERRORS = ("ConfigError", "LogshipperError", "QueryError", "StoreError", "UnknownJob")
_MODULES = {
    **dict.fromkeys(_ERRORS, "logshipper.errors"),
    **dict.fromkeys(("Event", "Job", "Line", "Record"), "observe.job_api"),
    "Found": "observe.info_lookup",
    **dict.fromkeys(("Iterations", "JobInfo", "Metric"), "observe.job_info"),
    **dict.fromkeys(("Jobs", "Store", "TimedOut"), "observe.store_api"),
    **dict.fromkeys(("Columns", "Rollup"), "observe.tables"),
    **dict.fromkeys(("EventLog", "StateEvent"), "observe.event_log"),
    **dict.fromkeys(("Report", "available_nodes", "throughput_report", "utilization_report"), "observe.analytics"),
    "BatchJob": "observe.batch_jobs",
    "UnknownKey": "observe.asked",
}


def __getattr__(name: str) -> object:
    """Imported when asked for: the commands, which are in this package, too, start without."""
    if name not in _MODULES:
        raise AttributeError(f"module 'observe' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
