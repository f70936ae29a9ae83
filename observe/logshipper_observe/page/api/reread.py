"""`api/jobs/ID/reread`: graphs of the series in a job's stored lines."""

from logshipper_observe.base.words import listed
from logshipper_observe.graphs.series import Graph, GraphRequest, graphs
from logshipper_observe.model.reread import RereadJob
from logshipper_observe.page.api.graphs import (
    DEFAULT_POINTS,
    MOST_GRAPHS,
    READ_SECS,
    graph_document,
)
from logshipper_observe.page.api.request import PageAnswer, Request, json_answer


def reread(request: Request) -> PageAnswer:
    """Read on in the job's lines. The answer has the graphs once `complete` is true: until then,
    the page repeats the request. Later requests read the new lines of a running job."""
    with request.store.job(request.parts[0]) as reader:
        job = reader.summary
        search = request.caches.rereads.get((job.job_id, job.started_ns))
        with search.lock:
            complete = search.read_on(reader, READ_SECS)
            plots: list[Graph] = []
            notes = search.notes(reader) if complete else []
            if complete and search.records:
                found = RereadJob(reader, search, with_stored=False)
                plots, left_out = graphs(found, GraphRequest(), MOST_GRAPHS)
                notes += [f"keys without a graph here: {listed(left_out)}"] if left_out else []
            document = {
                "complete": complete,
                "lines": search.lines,
                "total": max(job.lines, search.lines),
                "records": len(search.records),
                "graphs": [graph_document(graph, DEFAULT_POINTS) for graph in plots],
                "notes": notes,
            }
    return json_answer(document)
