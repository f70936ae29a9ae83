"""The same samples in a Prometheus and in a VictoriaMetrics, by remote write, and the comparison of
their answers."""

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import requests

from logshipper_ingest.metrics.remote_write import _HEADERS
from logshipper_ingest.metrics.remote_write_encoding import SeriesEncoder
from logshipper_ingest.model.ranks import escape
from logshipper_ingest.servers.loki_push import compress
from tests.grafana.tools.sources import TIMEOUT_SECS, PrometheusSource, Range
from tests.servers.running import PrometheusServer
from tests.servers.victoria_metrics import VictoriaMetricsServer
from tests.tools.waiting import wait_until

BATCH = 20_000  # samples of a request
OFF_MS = 7_000  # from round times, so that no sample lies at the begin of a window
EVERY_SECS = 5
FOUND_SECS = 30.0
TOLERANCE = 1e-9
TIMES_TOLERANCE = 1e-6  # precision of a difference between floats in seconds since 1970
INCREASE_TOLERANCE = 0.1
_OVER_WINDOWS = re.compile(r"\b(increase|predict_linear)\(")
Rounds = Mapping[int, Sequence[str]]  # by time in ms, lines of the text format without a time


def rounds_of(openmetrics: Iterable[str]) -> Rounds:
    """Convert lines of OpenMetrics with times in seconds to rounds."""
    rounds: dict[int, list[str]] = {}
    for line in openmetrics:
        if line[0] != "#":
            series, _, secs = line.rpartition(" ")
            rounds.setdefault(int(secs) * 1000 + OFF_MS, []).append(series)
    return rounds


def text_of(labels: Mapping[str, str]) -> str:
    """Return a series in the text format."""
    inside = ",".join(
        f'{name}="{escape(value)}"' for name, value in labels.items() if name != "__name__"
    )
    return f"{labels['__name__']}{{{inside}}}"


def scraped_rounds(prometheus: PrometheusSource, at_secs: float) -> Rounds:
    """Return a Prometheus' samples of agents and their jobs within an hour, a round each
    EVERY_SECS."""
    params = {"query": '{__name__=~"logshipper_.+"}[1h]', "time": at_secs}
    rounds: dict[int, dict[str, str]] = {}
    for series in prometheus.get("/api/v1/query", params)["result"]:
        text = text_of(series["metric"])
        for at, value in series["values"]:
            rounds.setdefault(int(at // EVERY_SECS + 1) * EVERY_SECS * 1000 + 2_000, {})[text] = (
                value
            )
    return {
        at: [f"{text} {value}" for text, value in samples.items()] for at, samples in rounds.items()
    }


class Comparison(NamedTuple):
    """A query and both answers. path: of the API; ordered: the order of labels counts."""

    path: str
    params: Mapping[str, Any]  # Any: values of a query string
    ours: Any  # Any: JSON
    theirs: Any
    ordered: bool = False

    @property
    def query(self) -> str:
        return str(self.params.get("query") or self.params.get("match[]"))

    @property
    def is_equal(self) -> bool:
        return not self.difference

    @property
    def difference(self) -> str:
        """The first difference; "" if the answers are equal."""
        if isinstance(self.ours, list):  # VictoriaMetrics returns the series of whole days
            series = [
                {repr(sorted(row.items())) for row in rows} for rows in (self.ours, self.theirs)
            ]
            missing = series[0] - series[1]
            return f"only Prometheus has {missing}" if missing else ""
        order = (lambda labels: labels) if self.ordered else sorted
        ours, theirs = _by_series(self.ours, order), _by_series(self.theirs, order)
        for labels in sorted(ours.keys() ^ theirs.keys()):
            side = "Prometheus" if labels in ours else "VictoriaMetrics"
            return f"only {side} has {labels}: {(ours.get(labels) or theirs.get(labels))!r:.200}"
        for labels, samples in ours.items():
            others = theirs[labels]
            for at in sorted(samples.keys() | others.keys()):
                near = [samples.get(at + shift) for shift in self._shifts()]
                if not any(self._are_close(value, others.get(at)) for value in near):
                    return f"{near[0]!r} and {others.get(at)!r} at {at} of {labels}"
        return ""

    def _shifts(self) -> tuple[float, ...]:
        """Return the allowed shifts of time. A window begins with the sample before it, or with its
        first sample."""
        step = float(self.params.get("step", 0))
        return (0.0, -step, step) if _OVER_WINDOWS.search(self.query) else (0.0,)

    def _are_close(self, value: float | None, other: float | None) -> bool:
        """Compare two values. Prometheus' `increase` extrapolates from the window's samples to its
        ends."""
        if value is None or other is None:
            return value is other
        tolerance = INCREASE_TOLERANCE if "increase(" in self.query else TOLERANCE
        of_times = "_time_seconds" in self.query
        least = TIMES_TOLERANCE if of_times else TOLERANCE
        are_close = math.isclose(value, other, rel_tol=tolerance, abs_tol=least)
        return are_close or (math.isnan(value) and math.isnan(other))


def _by_series(
    data: Any, order: Callable[[Iterable[tuple[str, str]]], Iterable[tuple[str, str]]]
) -> dict[str, dict[float, float]]:
    """Return values by time and labels, without empty labels."""
    series = {}
    for row in data["result"]:
        samples = row["values"] if "values" in row else [row["value"]]
        labels = order((name, value) for name, value in row["metric"].items() if value)
        series[repr(list(labels))] = {float(at): float(value) for at, value in samples}
    assert len(series) == len(data["result"]), "a series comes once"
    return series


def remote_write(url: str, series: Sequence[bytes]) -> None:
    """Send the output of SeriesEncoder."""
    with requests.Session() as session:
        session.trust_env = False  # no proxy for loopback
        answer = session.post(
            f"{url}/api/v1/write",
            data=compress(b"".join(series)),
            headers=_HEADERS,
            timeout=TIMEOUT_SECS,
        )
    assert answer.status_code == requests.codes.no_content, answer.text[:500]


class BothSources(PrometheusSource):
    """Prometheus source that sends each query to VictoriaMetrics, too."""

    def __init__(
        self, prometheus: PrometheusServer, victoria: VictoriaMetricsServer, *, scrape_ms: int
    ) -> None:
        super().__init__(prometheus.url, scrape_ms=scrape_ms)
        self._other = PrometheusSource(victoria.url, scrape_ms=scrape_ms)
        self.comparisons: list[Comparison] = []
        self._ordered = False

    @property
    def scrape_ms(self) -> int:
        return self._scrape_ms

    @scrape_ms.setter
    def scrape_ms(self, scrape_ms: int) -> None:
        self._scrape_ms = self._other._scrape_ms = scrape_ms

    def get(self, path: str, params: Mapping[str, Any]) -> Any:  # Any: as in the base
        comparison = self._ask(path, params, ordered=self._ordered)
        self.comparisons.append(comparison)
        return comparison.ours

    def _ask(self, path: str, params: Mapping[str, Any], *, ordered: bool) -> Comparison:
        ours = super().get(path, params)
        return Comparison(path, params, ours, self._other.get(path, params), ordered)

    def differing(
        self, questions: Iterable[Comparison], is_known: Callable[[Comparison], bool]
    ) -> list[Comparison]:
        """Return the queries with different answers, without known differences. Repeat them while
        they differ, because VictoriaMetrics caches a selector's series for some seconds."""

        def new(questions: Iterable[Comparison]) -> list[Comparison]:
            return [each for each in questions if not (each.is_equal or is_known(each))]

        found = new(questions)

        def none_differs() -> bool:
            found[:] = new(
                self._ask(question.path, question.params, ordered=question.ordered)
                for question in found
            )
            return not found

        if found:
            with contextlib.suppress(AssertionError):
                wait_until(none_differs, "the answers are the same", FOUND_SECS)
        return found

    def variable(self, query: object, when: Range) -> list[str]:
        self._ordered = True  # the variable's regular expression sees labels in the answer's order
        try:
            return super().variable(query, when)
        finally:
            self._ordered = False

    def write(self, rounds: Rounds, *, end_step_ms: int = 0) -> int:
        """Send all samples to both, with staleness markers at the end; return the number of
        samples.

        end_step_ms: time from the last round to the end of all series, 0 for no end.
        """
        encoder = SeriesEncoder({})
        batch: list[bytes] = []
        count = 0
        for time_ms, lines in _with_end(rounds, end_step_ms):
            batch += encoder.encode("\n".join(lines), time_ms)
            if len(batch) >= BATCH or not lines:
                count += self._push(batch)
                batch = []
        return count + self._push(batch)

    def _push(self, batch: Sequence[bytes]) -> int:
        for url in (self.url, self._other.url):
            remote_write(url, batch)
        return len(batch)


def _with_end(rounds: Rounds, end_step_ms: int) -> Iterator[tuple[int, Sequence[str]]]:
    yield from sorted(rounds.items())
    if end_step_ms:
        yield max(rounds) + end_step_ms, ()


# ---- promtool's notation of samples (https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/)

_VALUES = re.compile(r"(_|stale|-?[\d.]+(?:e[+-]?\d+)?)(?:([+-][\d.]+(?:e\d+)?))?(?:x(\d+))?", re.I)


def values_of(notation: str) -> Iterator[float | None]:
    """Yield the samples of a notation; None: no sample."""
    for word in notation.split():
        match = _VALUES.fullmatch(word)
        assert match, f"{word!r} in {notation!r} isn't understood"
        first, step, times = match.groups()
        is_number = first not in ("_", "stale")
        for number in range(int(times or 0) + 1 if is_number else int(times or 1)):
            yield float(first) + number * float(step or 0) if is_number else None
