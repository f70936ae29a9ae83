"""`api/grep`: matching lines of the listed jobs, some jobs per request."""

import time
from contextlib import closing

from logshipper_observe.model.documents import Document
from logshipper_observe.page.api.jobs import matching_jobs
from logshipper_observe.page.api.request import PageAnswer, Request, RequestRefusal, json_answer
from logshipper_observe.search.job_search import search_jobs
from logshipper_observe.search.line_search import LineMatch, LineSearch

SECS = 0.5  # of one answer, unless a single job takes longer
_JOBS = 100  # of one answer
_LINES = 3  # of one job
_MAX_TEXT = 200  # characters of the sought text
_BEFORE, _SHOWN = 60, 300  # characters of a line before its match, and in all


def grep(request: Request) -> PageAnswer:
    """Search for `text`, in any case, in the lines of the jobs that `state`, `tag` and `starred`
    select, newest first. after: id of the last searched job.

    Answer: jobs with a match, with their first lines and whether there are more; `after` for the next
    request, null at the end; the numbers of jobs `searched`, and in `total`.
    """
    text = request.params.get("text", "")
    if not text or len(text) > _MAX_TEXT:
        raise RequestRefusal(f"text: must have 1 to {_MAX_TEXT} characters")
    store = request.store.get()
    jobs = matching_jobs(request)
    after = request.params.get("after", "")
    begin = next((at for at, job in enumerate(jobs, start=1) if job.job_id == after), 0)
    portion = jobs[begin : begin + _JOBS]
    search = LineSearch([text], fixed=True, ignore_case=True, limit=_LINES + 1)
    problems: list[str] = []
    documents: list[Document] = []
    searched = begin
    until = time.monotonic() + SECS
    if store is not None:
        with closing(search_jobs(store, portion, search, problems.append)) as answers:
            for answer in answers:
                searched += 1
                lines = [_line_document(match, search) for match in answer.matches]
                job = answer.job
                if lines:
                    fields = {"job_id": job.job_id, "name": job.name, "state": job.state}
                    times = {"started_ns": job.started_ns, "has_more": len(lines) > _LINES}
                    documents.append({**fields, **times, "lines": lines[:_LINES]})
                if time.monotonic() > until:
                    break
    last = jobs[searched - 1].job_id if begin < searched < len(jobs) else None
    progress = {"after": last, "searched": searched, "total": len(jobs)}
    return json_answer({"jobs": documents, "problems": problems, **progress})


def _line_document(match: LineMatch, search: LineSearch) -> Document:
    begin = next((begin for begin, _ in search.spans(match.text)), 0)
    first = max(begin - _BEFORE, 0)
    text = ("…" if first else "") + match.text[first : first + _SHOWN]
    return {"number": match.number or None, "text": text}
