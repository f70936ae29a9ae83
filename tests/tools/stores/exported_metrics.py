"""All series that can be exported, to compare with other lists of them."""

from prometheus_client.parser import text_string_to_metric_families

from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition
from logshipper_ingest.metrics.remote_write import RemoteWriteMetrics
from logshipper_ingest.model.ledger import COLUMNS
from logshipper_ingest.model.slurm_hours import HourSums
from tests.tools.stores.job_views import FakeCapture, job_metrics


def exported() -> dict[str, tuple[str, set[str]]]:
    """Return type and labels of each family that can be exported, by name."""
    jobs, agent = job_metrics(), AgentMetrics("c1", "n1")
    ledger = dict.fromkeys(("stdout", "stderr"), dict.fromkeys(COLUMNS, 1))
    capture = FakeCapture(identity={"name": "x"}).print({"a": 1, "$": 1}, {"a": 2})
    jobs.update(capture.view(over=True, ledger=ledger, signal=9, nodes=2, limit_secs=60))
    jobs.slurm_ended("4711", 1, "TIMEOUT", 1_700_000_000, start_secs=1_600_000_000)
    labelled = {
        *(
            agent.pushes,
            agent.entries,
            agent.retries,
            agent.refused_entries,
            agent.left_out,
            agent.captures,
        ),
        *(
            agent.disk_free_bytes,
            agent.disk_size_bytes,
            agent.disk_free_files,
            agent.disk_size_files,
        ),
        *(agent.slurm_jobs, agent.slurm_node_seconds),
    }
    agent.set_slurm_hours({480_000: HourSums(7200, 3)})
    remote = RemoteWriteMetrics(agent.registry)
    remote.retries.labels("x")
    for metric in labelled:
        metric.labels("x")
    for counter in (agent.lines, agent.bytes):
        counter.labels("x", "x")
    text = exposition(agent, jobs)[0].decode()
    families: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        families[name] = family.type, labels
    return families
