"""Events in words."""

from logshipper_observe.base.words import exit_words
from logshipper_observe.model.documents import Document
from logshipper_observe.model.job_events import StateEvent


def event_words(event: Document) -> str:
    """An event as a sentence."""
    if event.get("event") == "state":
        before, after = (
            event.get("source_from") or event.get("from"),
            event.get("source_to") or event.get("to"),
        )
        return f"from {before} to {after}" if before else f"{after}"
    message = event.get("message")
    if event.get("event") == "mode_changed":
        words = f"mode changed from {event.get('from', '?')} to {event.get('to', '?')}"
        return message if isinstance(message, str) and message.startswith(words) else words
    if isinstance(message, str) and message:
        return message
    return str(event.get("event", "")).replace("_", " ") or "an event without a name"


def words_of_event(event: StateEvent) -> str:
    """An event in words, besides its states; "" where these say all."""
    if not event.to_state:
        return event.message or event_words({**event.data, "event": event.kind})
    code, signal = event.data.get("exit_code"), event.data.get("signal")
    outcome = exit_words(
        code if isinstance(code, int) else None, signal if isinstance(signal, int) else 0
    )
    return event.message or (outcome if code or signal else "")
