"""A limit on the events of one kind. Pure."""

from logshipper.classify.capture_log import CaptureLog


class EventLimit:
    """Counts events of one kind and reports those over the limit: at the first, and at the end."""

    def __init__(self, name: str, limit: int, consequence: str) -> None:
        self._event_name = f"{name}_left_out"
        self._limit = limit
        self._consequence = consequence  # for the events over the limit
        self._count = self._reported_count = 0

    def admit(self, log: CaptureLog) -> bool:
        """Count an event; return whether it is within the limit."""
        self._count += 1
        if self._count == self._limit + 1:
            message = f"the limit of {self._limit:,} is reached: {self._consequence}"
            log.event(self._event_name, message)
        return self._count <= self._limit

    def report(self, log: CaptureLog) -> None:
        count = self._count - self._limit
        if count > self._reported_count:
            self._reported_count = count
            message = f"{count:,} over the limit: {self._consequence}"
            log.event(self._event_name, message, events=count)
