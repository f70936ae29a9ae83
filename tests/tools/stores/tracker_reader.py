"""Prints the runs in a folder of TensorBoard's event files or of MLflow as JSON, by the readers of
these projects. Runs in the environment that has them (requirements/tool.sh)."""

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

Json = Any  # Any: JSON
NAN = "nan"


def tensorboard_runs(folder: str) -> Json:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs = {}
    for path in sorted({file.parent for file in Path(folder).rglob("events.out.tfevents.*")}):
        events = EventAccumulator(str(path), size_guidance={"tensors": 0})
        events.Reload()
        hparams = events.PluginTagToContent("hparams") if "hparams" in _plugins(events) else {}
        runs[str(path.relative_to(folder))] = {
            "values": {
                tag: [
                    (point.step, _plain(point.value), point.wall_time)
                    for point in events.Scalars(tag)
                ]
                for tag in events.Tags()["scalars"]
            },
            "texts": {
                tag: [
                    (tensor.step, tensor.tensor_proto.string_val[0].decode())
                    for tensor in events.Tensors(tag)
                ]
                for tag in events.Tags()["tensors"]
            },
            "config": _settings(hparams),
        }
    return runs


def _plugins(events: Any) -> Json:
    return {data.plugin_name for data in (m.plugin_data for m in events.summary_metadata.values())}


def _settings(contents: dict[str, bytes]) -> Json:
    from tensorboard.plugins.hparams import metadata

    content = contents.get(metadata.SESSION_START_INFO_TAG)
    if content is None:
        return {}
    info = metadata.parse_session_start_info_plugin_data(content)
    return {name: value.string_value or value.number_value for name, value in info.hparams.items()}


def mlflow_runs(folder: str) -> Json:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow import MlflowClient

    client = MlflowClient(folder)
    runs = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            run_id = run.info.run_id
            runs[run.data.tags["logshipper.job_id"]] = {
                "experiment": experiment.name,
                "name": run.info.run_name,
                "status": run.info.status,
                "times": [run.info.start_time, run.info.end_time],
                "config": run.data.params,
                "console": Path(client.download_artifacts(run_id, "console.txt")).read_text()
                if client.list_artifacts(run_id)
                else None,
                "values": {
                    key: [
                        (point.step, _plain(point.value), point.timestamp)
                        for point in client.get_metric_history(run_id, key)
                    ]
                    for key in run.data.metrics
                },
            }
    return runs


def _plain(value: float) -> Json:
    return NAN if math.isnan(value) else round(value, 6)


if __name__ == "__main__":
    read = tensorboard_runs if sys.argv[1] == "tensorboard" else mlflow_runs
    json.dump(read(sys.argv[2]), sys.stdout)
