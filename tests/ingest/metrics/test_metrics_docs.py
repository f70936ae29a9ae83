"""docs/metrics.md documents all exported metrics, and no others."""

import re
from collections.abc import Mapping

from logshipper_ingest.config.agent_config import MetricsSection
from logshipper_ingest.influxdb.influxdb_sink import REASONS as INFLUXDB_REASONS
from logshipper_ingest.metrics.agent_metrics import LEFT_OUT_REASONS, SCRAPE_REASONS
from logshipper_ingest.metrics.job_metrics import MAX_JOB_KEYS, MAX_KEYS_LOGGED
from logshipper_ingest.metrics.job_series import FAMILIES
from logshipper_ingest.metrics.metrics_server import DEADLINE_SECS, HEAD_SECS, MAX_CONNECTIONS
from logshipper_ingest.metrics.remote_write import DROP_REASONS, MAX_OFF_SECS, MAX_SPLITS, PROBE
from logshipper_ingest.model.job import RUNNING, UNRESPONSIVE
from logshipper_ingest.model.ledger import COLUMNS
from logshipper_ingest.model.ranks import REASONS, alphabetical_code, rank
from tests.tools.sources import ROOT
from tests.tools.stores.exported_metrics import exported
from tests.tools.stores.job_views import FakeCapture, job_metrics

PAGE = (ROOT / "docs" / "metrics.md").read_text()
JOB_LABELS = {"cluster", "job_id"}


def rows(section: str) -> dict[str, list[str]]:
    """Return the cells of a section's tables, by the name in the first cell."""
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert text is not None
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text[1].splitlines()
        if line[:1] == "|"
    ]
    return {row[0].strip("`"): row[1:] for row in cells if row[0].startswith("`")}


def code(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_every_metric_of_jobs_is_documented_and_no_other() -> None:
    documented = {
        name: cells for name, cells in rows("Jobs").items() if name.startswith("logshipper_")
    }
    assert documented.keys() == FAMILIES.keys()
    families = exported()
    for name, cells in documented.items():
        assert families[name] == ("gauge", JOB_LABELS | code(cells[0])), name


def test_every_metric_of_the_agent_is_documented_and_no_other() -> None:
    documented = {
        name: cells for name, cells in rows("The agent").items() if name.startswith("logshipper_")
    }
    families = {
        name: facts for name, facts in exported().items() if name.startswith("logshipper_agent_")
    }
    assert documented.keys() == families.keys()
    for name, cells in documented.items():
        assert families[name] == (cells[0], code(cells[1])), name
    of_process = {name for name in exported() if not name.startswith("logshipper_")}
    assert of_process == set(re.findall(r"`(process_\w+)`", PAGE))


def test_values_of_labels_and_reasons() -> None:
    table = rows("Jobs")
    assert set(REASONS) == {name for name in table if not name.startswith("logshipper_")}
    assert set(COLUMNS) | {"outcome", "stream", "stdout", "stderr"} == code(
        table["logshipper_job_lines"][1]
    )
    assert {RUNNING, UNRESPONSIVE} < code(table["logshipper_job_state"][1])


def values_of(label: str) -> str:
    """Return the cell with a label's values."""
    match = re.search(rf"^\| {re.escape(label)} \| (.*) \|$", PAGE, re.MULTILINE)
    assert match is not None
    return match[1]


def test_reasons_of_drops_by_limits() -> None:
    assert set(LEFT_OUT_REASONS) == code(values_of("`reason` of a drop by a limit"))
    of_entries = values_of("`reason` of a refused entry")
    assert set(INFLUXDB_REASONS) == code(re.search(r"by an InfluxDB (.*?);", of_entries)[1])  # type: ignore[index]


def test_reasons_of_refused_scrapes() -> None:
    assert set(SCRAPE_REASONS) == code(values_of("`reason` of a refused scrape"))


def test_reasons_of_samples_that_remote_write_dropped() -> None:
    assert set(DROP_REASONS) == code(values_of("`reason` of a dropped sample"))


def test_series_of_a_capture_and_of_its_job() -> None:
    text = " ".join(PAGE.split())
    of_capture, of_job, keys = 23, 1, 20
    assert (
        f"{of_capture} + K series (two more once it is over), and its job {of_job} + 3 K more on each"
        in text
    )
    ledger = dict.fromkeys(("stdout", "stderr"), dict.fromkeys(COLUMNS, 1))
    jobs = job_metrics()
    for task in range(3):
        capture = FakeCapture(key=f"c{task}", task=task)
        for step in (1, 2):
            capture.print({f"k{key}": step for key in range(keys)})
        jobs.update(capture.view(ledger=ledger, over=task == 2))
    series = [line for line in jobs.text().splitlines() if line[0] != "#"]
    assert len(series) == 3 * (of_capture + keys) + 2 + of_job + 3 * keys


def test_numbers_in_the_text() -> None:
    section = MetricsSection()
    facts: Mapping[str, object] = {
        f"`expire_secs` ({section.expire_secs:g})": section,
        f"`max_label_bytes` ({section.max_label_bytes})": section,
        f"`max_keys` ({section.max_keys})": section,
        f"`max_captures` ({section.max_captures:,})": section,
        f"http://{section.listen}/metrics": section,
        f"{MAX_CONNECTIONS} connections at a time": MAX_CONNECTIONS,
        f"After {MAX_SPLITS} halvings": MAX_SPLITS,
        f"off** by over {MAX_OFF_SECS:g} seconds": MAX_OFF_SECS,
        f"after {DEADLINE_SECS:g} seconds, or": DEADLINE_SECS,
        f"after {HEAD_SECS:g} seconds without": HEAD_SECS,
        f"the first {MAX_KEYS_LOGGED} keys": MAX_KEYS_LOGGED,
        f"{MAX_JOB_KEYS:,} keys of a job": MAX_JOB_KEYS,
    }
    assert [words for words in facts if words not in PAGE] == []
    match = re.search(r'path="step"\}  (\d+)', PAGE)
    assert match is not None
    assert str(rank(3, alphabetical_code("step"), 0)) == match[1]


def test_every_metric_that_a_query_names_is_exported() -> None:
    names = set(re.findall(r"\blogshipper_\w+", PAGE))
    assert names - {PROBE} == {name for name in exported() if name.startswith("logshipper_")}
