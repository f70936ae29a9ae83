"""Make tests/imports/xt: records written by XT's own code. Run it by hand, with a Python that has
arrow, PyYAML, psutil, python-interface, and xtlib 1.0.0 (`pip install --no-deps`):

    python make_xt.py xt

XT keeps its runs in Azure. This script calls XT's own `Store.log_run_event` and its kin, and a
folder stores their text.
"""

import importlib
import os
import shutil
import sys
import tempfile
import types
from typing import Any
from unittest.mock import MagicMock

_ABSENT = (
    "adal", "azure", "azureml", "bson", "cryptography", "gridfs", "hyperopt", "keyring", "matplotlib", "msal", "msrest",
    "msrestazure", "numpy", "pandas", "paramiko", "pymongo", "requests", "rpyc", "ruamel", "tensorboard",
)  # fmt: skip


class _Absent:
    """Replace packages of Azure, MongoDB and others that this script never calls."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name.partition(".")[0] in _ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]  # it is a loader
        return None

    def create_module(self, spec: "importlib.machinery.ModuleSpec") -> types.ModuleType:
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__ = spec, [], spec.name
        return module

    def exec_module(self, module: object) -> None: ...


def main(target: str) -> None:
    sys.meta_path.append(_Absent())  # type: ignore[arg-type]  # a finder, but for argument names
    store_class: Any = importlib.import_module("xtlib.storage.store").Store  # Any: XT has no types
    run_module = importlib.import_module("xtlib.run")
    folder = tempfile.mkdtemp(prefix="xt-")

    class FolderStore(store_class):  # type: ignore[misc]  # likewise
        def __init__(self) -> None:
            self.mongo = MagicMock()
            self.mongo.get_job_names.return_value = []

        def append_run_file(self, ws_name: str, run_name: str, name: str, text: str) -> None:
            os.makedirs(os.path.join(folder, ws_name, run_name), exist_ok=True)
            with open(os.path.join(folder, ws_name, run_name, name), "a") as file:
                file.write(text)

        def append_job_file(self, job: str, name: str, text: str) -> None:
            with open(os.path.join(folder, name), "a") as file:
                file.write(text)

        def does_experiment_exist(self, ws: str, name: str) -> bool:
            return True

        def get_run_log(self, ws: str, run: str) -> Any:  # Any: as above
            utils = importlib.import_module("xtlib.utils")
            with open(os.path.join(folder, ws, run, "run.log")) as file:
                return utils.load_json_records(file.read())

    store = FolderStore()
    for number, lr in enumerate((0.1, 0.01), start=1):
        name = f"run1.{number}"
        store.start_run_core(
            "ws1", name, exper_name="mnist", description=f"lr {lr}", username="ann", box_name="box1", job_id="job7",
            node_index=0, path="train.py", compute="pool", search_style="random",
        )  # fmt: skip
        command = ["python", "train.py", "--lr", str(lr)]
        store.log_run_event("ws1", name, "cmd", {"cmd": command, "xt_cmd": "xt run train.py"})
        store.log_run_event("ws1", name, "status-change", {"status": "queued"})
        store.log_run_event("ws1", name, "started", {})
        run = run_module.Run.__new__(run_module.Run)
        run.store, run.xt_logging, run.ws_name, run.run_name, run.is_aml = (
            store,
            True,
            "ws1",
            name,
            False,
        )
        run.metric_report_count, run.metric_names, run.supress_normal_output = 0, {}, True
        run.run, run.context, run.aml_logging = None, None, False
        run.train_writer = run.test_writer = run.train_writer2 = run.test_writer2 = None
        run.log_hparams({"lr": lr, "optimizer": "adam"})
        for epoch in range(1, 4):
            run.log_metrics({"epoch": epoch, "loss": lr / epoch}, step_name="epoch", stage="train")
        run.log_metrics(
            {"epoch": 3, "acc": 0.5 + lr, "loss": float("nan")}, step_name="epoch", stage="test"
        )
        run.log_event("early_stopping", {"reason": "loss_is_nan"})
        store.log_run_event("ws1", name, "notes", {"notes": f"a note on {name}"})
        status, code = ("completed", 0) if number == 1 else ("error", 1)
        store.rollup_and_end_run("ws1", name, "job", "job7", status, code, "test-acc", True, False)
        os.makedirs(os.path.join(folder, "ws1", name, "output"))
        with open(
            os.path.join(folder, "ws1", name, "output", "console.txt"), "w", newline=""
        ) as file:
            file.write(f"training with lr {lr}\n  0%|   |\r100%|###|\ndone\n")
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, newline="") as file:
                text = file.read().replace(os.uname().nodename, "login1")
            with open(path, "w", newline="") as file:
                file.write(text)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1])
