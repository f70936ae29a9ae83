"""Make tests/imports/tracked: runs written by TensorBoard's and wandb's own libraries. Run it by hand,
with a Python that has tensorboardX 2.6.5 and wandb 0.31.0:

    python make_tracked.py tracked
"""

import importlib
import os
import shutil
import sys
from pathlib import Path

os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)

wandb = importlib.import_module("wandb")  # it reads the environment
tensorboard = importlib.import_module("tensorboardX")

with tensorboard.SummaryWriter(str(folder / "tensorboard" / "mlp")) as writer:
    writer.add_text("note", "first try", 0)
    for step in range(1, 6):
        writer.add_scalar("train/loss", 1 / step, step, walltime=1_790_000_000 + step)
        writer.add_scalar("train/acc", 1 - 1 / step, step, walltime=1_790_000_000.5 + step)
    writer.add_scalar("val/loss", float("nan"), 5, walltime=1_790_000_006)
    hparams = {"lr": 0.1, "optimizer": "adam", "nesterov": True}
    writer.add_hparams(hparams, {"hparam/loss": 0.2}, name="hp")

settings = wandb.Settings(
    program="train.py", disable_git=True, save_code=False, x_disable_meta=True, x_disable_stats=True, host="node1"
)  # fmt: skip
config = {"lr": 0.1, "layers": [3, 4], "optimizer": {"name": "adam"}}
with wandb.init(
    project="mnist", name="mlp-1", dir=folder, config=config, tags=["first"], notes="a try", id="abcd1234",
    settings=settings,
) as run:  # fmt: skip
    for epoch in range(5):
        print("epoch", epoch)
        run.log({"epoch": epoch, "loss": 1 / (epoch + 1), "val": {"acc": epoch / 5}})
    print("bad", file=sys.stderr)
    run.log({"loss": float("nan"), "table": [1, 2]})
    run.summary["best"] = 0.2

(written,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
os.rename(written, folder / "run-abcd1234.wandb")
shutil.rmtree(folder / "wandb")
