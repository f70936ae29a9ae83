"""Reasons of Loki's refusals and delays, one word for each, recognised by Loki's messages. Pure."""

import re
from collections.abc import Mapping

from logshipper.errors import PushError

SPLITTING = (400, 413)  # something about the entries
TOO_LARGE = "too_large"  # HTTP 413
OTHER = "other"  # unknown messages
# about these entries, surely
CERTAIN = {"too_far_behind", "too_old", "too_new", "line_too_long", TOO_LARGE}
_PATTERNS = {
    "metadata_disallowed": r"feature is disallowed",
    "too_far_behind": r"too far behind|out of order",
    "too_old": r"timestamp too old|older than",
    "too_new": r"too new",
    "line_too_long": r"line too long|max entry size|exceeded max",
    "metadata_too_large": r"structured metadata",
    "stream_limit": r"maximum active stream",
    "labels": r"label",
}
STREAM_LIMIT = "stream_limit"
TENANT_RATE = "tenant_rate"
STREAM_RATE = "stream_rate"
_THROTTLES = {
    STREAM_LIMIT: r"maximum active stream|stream limit",
    STREAM_RATE: r"per.stream rate limit",
    TENANT_RATE: r"ingestion rate limit",
}
THROTTLES = (*_THROTTLES, OTHER)
REASONS = (*_PATTERNS, TOO_LARGE, OTHER)


def reason_of(error: PushError) -> str:
    """One of REASONS."""
    return TOO_LARGE if error.status == 413 else first_match(_PATTERNS, error.excerpt)


def first_match(patterns: Mapping[str, str], words: str) -> str:
    """Return the name of the first pattern that matches a message; OTHER if none does."""
    return next((name for name, regex in patterns.items() if re.search(regex, words, re.I)), OTHER)


def throttle_of(error: PushError) -> str:
    """Return the limit behind a 429, one of THROTTLES; "" for other answers.

    stream_limit: Loki accepts no new stream while others are active; stream_rate: the stream has
    used its share; tenant_rate: all streams have used the tenant's share.
    """
    return first_match(_THROTTLES, error.excerpt) if error.status == 429 else ""


def fix_of(error: PushError, tenant: str) -> str:
    """Return the remedy for an answer, and the data that waits for it.

    tenant: the tenant concerned, "" for all.
    """
    status, limit = error.status, throttle_of(error)
    waits = f"what is of the tenant {tenant} waits" if tenant else "everything waits"
    if limit == STREAM_LIMIT:
        words = "it takes no new stream: raise max_global_streams_per_user in Loki's limits_config;"
        return f"{words} streams that it knows go on, what is of others waits in the spool"
    if limit == STREAM_RATE:
        return "[loki] stream_max_bytes_per_sec is more than its per_stream_rate_limit: this stream waits, others go on"
    if limit == TENANT_RATE and not tenant:
        return "the agent slows down until it finds its share of Loki's ingestion_rate_mb; nothing is lost"
    if status in (401, 403):
        return (
            f"credentials or tenant are wrong: look at [loki] in the agent's configuration; {waits}"
        )
    if status in SPLITTING:
        words = "it refuses whatever it is sent: `logshipper-agent check` says which of Loki's settings is in the way"
        return f"{words}, if it is Loki that answers; {waits}"
    if status == 404:
        return "there is no Loki at this address: look at [loki] url; everything waits"
    return f"{waits} in the spool, and is tried again"
