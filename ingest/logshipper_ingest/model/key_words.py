"""Words in names of keys that tell how telling a graph is, and which part of the data it shows."""

from typing import Literal, TypeAlias

Part: TypeAlias = Literal["train", "validation", "test", ""]  # of the data, "" if the name has none

PARTS: dict[str, Part] = {
    "train": "train", "training": "train", "tr": "train",
    "val": "validation", "valid": "validation", "validation": "validation", "eval": "validation",
    "evaluation": "validation", "dev": "validation", "test": "test", "testing": "test",
}  # fmt: skip
LOSSES = frozenset(
    "loss losses logloss cost err error rmse mse mae nll perplexity ppl bpb wer cer residual".split()
)
SCORES = frozenset(
    "acc accuracy score f1 auc auroc ap map iou miou dice bleu rouge rew reward return returns"
    " precision recall r2 mcc psnr ssim top1 top5 win".split()
)
TARGETS = frozenset(
    "energy objective gap fitness likelihood logl".split()
)  # either end may be best
SIDE = frozenset(
    "lr rate norm grad sec secs second seconds s ms time duration elapsed throughput fps speed mem"
    " memory gpu cpu util temperature eta tokens samples iter iteration iterations step steps epoch"
    " epochs count updates total runtime batch size momentum decay beta".split()
)
