"""Searches the lines of jobs of any store."""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, cast

from logshipper_observe.search.line_search import JobMatches, LineSearch

if TYPE_CHECKING:
    from logshipper_ingest.loki.store import LokiStore
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import JobStore


def search_jobs(
    store: "JobStore",
    jobs: "Sequence[JobSummary]",
    search: LineSearch,
    report: Callable[[str], None],
) -> Generator[JobMatches]:
    """Yield each job with its matches, in this order, newest first.

    report: gets faults that hid matches, a sentence each. Raises QueryError.
    """
    from logshipper_ingest.store.local_store import (
        LocalStore,  # late: a search needs one store only
    )

    if isinstance(store, LocalStore):
        from logshipper_observe.search.local_search import search_local

        return search_local(store, jobs, search, report)
    from logshipper_observe.search.loki_search import search_loki

    return search_loki(cast("LokiStore", store), jobs, search)
