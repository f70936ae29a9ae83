"""`api/jobs/ID/events`: a job's events, newest first, for the list and for marks in graphs."""

from collections import Counter
from itertools import islice

from logshipper_observe.base.output import to_json
from logshipper_observe.base.words import NS
from logshipper_observe.graphs.series import beginning_ns
from logshipper_observe.model.job_events import (
    EventSelection,
    StateEvent,
    events_of,
    words_of_event,
)
from logshipper_observe.page.api.request import PageAnswer, Request, tagged_answer

MAX_LISTED = 1_000
MAX_COUNTED = 20_000
_DATA_CHARS = 2_000  # of one event
_WORD_CHARS = 500


def events(request: Request) -> PageAnswer:
    """List events.

    Parameters: `kind` selects one kind; `limit`. In the answer, `secs` counts from the start of the
    job's first capture, as graphs over time do. The server counts only the newest MAX_COUNTED
    events; `complete` is false if there are more.
    """
    kind, limit = request.params.get("kind", ""), request.number("limit", 200, 1, MAX_LISTED)
    kinds: Counter[str] = Counter()
    matches: list[StateEvent] = []
    with request.store.job(request.parts[0]) as reader:
        history = events_of(reader.summary, reader, EventSelection(newest_first=True))
        for event in islice(history, MAX_COUNTED):
            kinds[event.kind] += 1
            if kind in ("", event.kind) and len(matches) < limit:
                matches.append(event)
        complete = next(history, None) is None
        start_ns = beginning_ns(reader)
    document = {
        "total": kinds.total(),
        "complete": complete,
        "matching": kinds[kind] if kind else kinds.total(),
        "kinds": dict(sorted(kinds.items())),
        "events": [_document(event, start_ns) for event in matches],
    }
    facts = [kind, limit, complete, *sorted(kinds.items()), [event.id for event in matches]]
    return tagged_answer(request, document, facts)


def _document(event: StateEvent, start_ns: int) -> dict[str, object]:
    data = to_json(dict(event.data))
    return {
        "id": event.id,
        "time_ms": event.time_ns // 1_000_000,
        "secs": (event.time_ns - start_ns) / NS,
        "kind": event.kind[:_WORD_CHARS],
        "from_state": event.from_state[:_WORD_CHARS],
        "to_state": event.to_state[:_WORD_CHARS],
        "words": words_of_event(event)[:_WORD_CHARS],
        "data": data if len(data) <= _DATA_CHARS else f"{data[:_DATA_CHARS]}…",
    }
