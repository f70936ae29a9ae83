"""Reasons of Loki's refusals and delays, one word for each, recognised by Loki's messages. Pure."""

import re

from logshipper.errors import PushError

SPLITTING = (400, 413)  # something about the entries
TOO_LARGE = "too_large"  # HTTP 413
OTHER = "other"  # unknown messages
CERTAIN = {
    "too_far_behind",
    "too_old",
    "too_new",
    "line_too_long",
    TOO_LARGE,
}  # about these entries, surely
_PATTERNS = (
    ("metadata_disallowed", re.compile(r"feature is disallowed", re.I)),
    ("too_far_behind", re.compile(r"too far behind|out of order", re.I)),
    ("too_old", re.compile(r"timestamp too old|older than", re.I)),
    ("too_new", re.compile(r"too new", re.I)),
    ("line_too_long", re.compile(r"line too long|max entry size|exceeded max", re.I)),
    ("metadata_too_large", re.compile(r"structured metadata", re.I)),
    ("stream_limit", re.compile(r"maximum active stream", re.I)),
    ("labels", re.compile(r"label", re.I)),
)
STREAM_LIMIT = "stream_limit"
TENANT_RATE = "tenant_rate"
STREAM_RATE = "stream_rate"
_THROTTLES = (
    (STREAM_LIMIT, re.compile(r"maximum active stream|stream limit", re.I)),
    (STREAM_RATE, re.compile(r"per.stream rate limit", re.I)),
    (TENANT_RATE, re.compile(r"ingestion rate limit", re.I)),
)
THROTTLES = (*(reason for reason, _ in _THROTTLES), OTHER)
REASONS = (*(reason for reason, _ in _PATTERNS), TOO_LARGE, OTHER)


def reason_of(error: PushError) -> str:
    """One of REASONS."""
    if error.status == 413:
        return TOO_LARGE
    return next((reason for reason, pattern in _PATTERNS if pattern.search(error.excerpt)), OTHER)


def throttle_of(error: PushError) -> str:
    """Return the limit behind a 429, one of THROTTLES; "" for other answers.

    stream_limit: Loki accepts no new stream while others are active; stream_rate: the stream has
    used its share; tenant_rate: all streams have used the tenant's share.
    """
    if error.status != 429:
        return ""
    return next((reason for reason, pattern in _THROTTLES if pattern.search(error.excerpt)), OTHER)


def fix_of(error: PushError, tenant: str) -> str:
    """Return the remedy for an answer, and the data that waits for it.

    tenant: the tenant concerned, "" for all.
    """
    status, limit = error.status, throttle_of(error)
    waits = f"what is of the tenant {tenant} waits" if tenant else "everything waits"
    if limit == STREAM_LIMIT:
        return (
            "it takes no new stream: raise max_global_streams_per_user in Loki's limits_config; streams that it knows "
            "go on, what is of others waits in the spool"
        )
    if limit == STREAM_RATE:
        return "[loki] stream_max_bytes_per_sec is more than its per_stream_rate_limit: this stream waits, others go on"
    if limit == TENANT_RATE and not tenant:
        return "the agent slows down until it finds its share of Loki's ingestion_rate_mb; nothing is lost"
    if status in (401, 403):
        return (
            f"credentials or tenant are wrong: look at [loki] in the agent's configuration; {waits}"
        )
    if status in SPLITTING:
        return (
            "it refuses whatever it is sent: `logshipper-agent check` says which of Loki's settings is in the way, if "
            f"it is Loki that answers; {waits}"
        )
    if status == 404:
        return "there is no Loki at this address: look at [loki] url; everything waits"
    return f"{waits} in the spool, and is tried again"
