"""`api/jobs/ID/events`, what happened to a job, newest first: a list, and marks in its graphs."""

from collections import Counter
from itertools import islice

from logshipper_observe.base.output import to_json
from logshipper_observe.base.words import NS
from logshipper_observe.model.event_words import words_of_event
from logshipper_observe.model.job_events import EventSelection, StateEvent, events_of
from logshipper_observe.page.answers import Ask, PageAnswer, tagged_answer

MAX_LISTED = 1_000
MAX_COUNTED = 20_000
_DATA_CHARS = 2_000  # of one event
_WORD_CHARS = 500


def events(ask: Ask) -> PageAnswer:
    """`kind`: only of this one; `limit`. secs: since the job's first capture began, as graphs over
    time have it. Of very many events only the newest are looked at and counted: complete says
    whether that is all."""
    kind, limit = ask.words.get("kind", ""), ask.number("limit", 200, 1, MAX_LISTED)
    kinds: Counter[str] = Counter()
    matches: list[StateEvent] = []
    with ask.store.job(ask.parts[0]) as reader:
        history = events_of(reader.summary, reader, EventSelection(newest_first=True))
        for event in islice(history, MAX_COUNTED):
            kinds[event.kind] += 1
            if kind in ("", event.kind) and len(matches) < limit:
                matches.append(event)
        complete = next(history, None) is None
        began_ns = min(
            (capture.started_ns for capture in reader.captures), default=reader.summary.started_ns
        )
    document = {
        "total": kinds.total(),
        "complete": complete,
        "matching": kinds[kind] if kind else kinds.total(),
        "kinds": dict(sorted(kinds.items())),
        "events": [_document(event, began_ns) for event in matches],
    }
    facts = [kind, limit, complete, *sorted(kinds.items()), [event.id for event in matches]]
    return tagged_answer(ask, document, facts)


def _document(event: StateEvent, began_ns: int) -> dict[str, object]:
    data = to_json(dict(event.data))
    return {
        "id": event.id,
        "time_ms": event.time_ns // 1_000_000,
        "secs": (event.time_ns - began_ns) / NS,
        "kind": event.kind[:_WORD_CHARS],
        "from_state": event.from_state[:_WORD_CHARS],
        "to_state": event.to_state[:_WORD_CHARS],
        "words": words_of_event(event)[:_WORD_CHARS],
        "data": data if len(data) <= _DATA_CHARS else f"{data[:_DATA_CHARS]}…",
    }
