"""Exports a job as a run of MLflow: metrics, parameters and the console as an artifact. Needs
mlflow-skinny or mlflow."""

import os
import tempfile
from collections.abc import Iterable, Sequence

from logshipper.errors import LogshipperError
from logshipper_ingest.model.job import JobSummary
from logshipper_observe.trackers.tracker import NOT_IN_NAMES, TOOL, TrackedJob, TrackerRun
from logshipper_observe.trackers.value_stream import Value

try:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException
except ImportError:
    raise LogshipperError(
        "--mlflow needs mlflow-skinny, which is not installed: pip install mlflow-skinny"
    ) from None

EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"  # MLflow's own variable
ALLOW_FOLDER = "MLFLOW_ALLOW_FILE_STORE"  # without it, MLflow refuses folders
MAX_METRICS, MAX_PARAMS = 1000, 100  # of a request
MAX_NAME, MAX_PARAM = 250, 6000  # characters
NS_PER_MS = 1_000_000
_JOB_ID = f"{TOOL}.job_id"
_STATES = {"COMPLETED": "FINISHED", "CANCELLED": "KILLED", "PREEMPTED": "KILLED"}


class MlflowRun(TrackerRun):
    """A run of an MLflow server, or of a folder or database that MLflow manages."""

    def __init__(self, uri: str, job: JobSummary, *, force: bool) -> None:
        self._metrics = _Names()
        name = os.environ.get(EXPERIMENT, TOOL)
        if "://" not in uri or uri.startswith("file:"):
            os.environ.setdefault(ALLOW_FOLDER, "true")  # the user asked for a folder
        try:
            self._client = MlflowClient(uri)
            experiment = self._client.get_experiment_by_name(name)
            identifier = (
                self._client.create_experiment(name)
                if experiment is None
                else experiment.experiment_id
            )
            same = f"tags.`{_JOB_ID}` = '{job.job_id}'"
            for run in self._client.search_runs([identifier], same):
                if not force:
                    raise LogshipperError(
                        f"--mlflow: experiment {name} has {job.job_id} already: "
                        f"run {run.info.run_id}; --force replaces it"
                    )
                self._client.delete_run(run.info.run_id)
            tags = {_JOB_ID: job.job_id, "mlflow.user": job.user, "mlflow.source.name": job.name}
            run = self._client.create_run(
                identifier,
                job.started_ns // NS_PER_MS,
                {key: tag for key, tag in tags.items() if tag},
                job.name,
            )
        except MlflowException as error:
            raise _failed(uri, error) from None
        self._uri = uri
        self._run_id: str = run.info.run_id
        self.place = f"run {self._run_id} of experiment {name}"

    def add(self, values: Sequence[Value]) -> None:
        metrics = [
            Metric(
                self._metrics.of(f"{value.curve}/{value.key}" if value.curve else value.key),
                value.number,
                value.time_ns // NS_PER_MS,
                value.step,
            )
            for value in values
        ]
        for begin in range(0, len(metrics), MAX_METRICS):
            self._log(metrics=metrics[begin : begin + MAX_METRICS])

    def finish(self, job: TrackedJob, lines: Iterable[str]) -> None:
        names = _Names()
        params = [
            Param(names.of(name), str(value)[:MAX_PARAM]) for name, value in job.config.items()
        ]
        for begin in range(0, len(params), MAX_PARAMS):
            self._log(params=params[begin : begin + MAX_PARAMS])
        summary = job.summary
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "console.txt")
                with open(path, "w", encoding="utf-8", errors="replace") as file:
                    file.writelines(f"{line}\n" for line in lines)
                self._client.log_artifact(self._run_id, path)
            if summary.ended_ns:
                state = _STATES.get(summary.state, "FAILED")
                self._client.set_terminated(self._run_id, state, summary.ended_ns // NS_PER_MS)
        except MlflowException as error:
            raise _failed(self._uri, error) from None

    def _log(self, *, metrics: Sequence[Metric] = (), params: Sequence[Param] = ()) -> None:
        try:
            self._client.log_batch(self._run_id, metrics, params)
        except MlflowException as error:
            raise _failed(self._uri, error) from None


class _Names:
    """Names that MLflow accepts, different for different keys."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._used: set[str] = set()

    def of(self, key: str) -> str:
        if key not in self._names:
            plain = NOT_IN_NAMES.sub("_", key).strip("/.")[: MAX_NAME - 10] or "_"
            name, number = plain, 1
            while name in self._used:
                number += 1
                name = f"{plain}_{number}"
            self._used.add(name)
            self._names[key] = name
        return self._names[key]


def _failed(uri: str, error: Exception) -> LogshipperError:
    return LogshipperError(f"--mlflow: {uri}: {str(error)[:500]}")
