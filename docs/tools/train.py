"""The program of README's animation (animation.py): it fits a circle by gradient descent, with a
bar and a JSON line for each epoch."""

import json
import sys
import time

import numpy as np
from tqdm import tqdm

EPOCHS, BATCHES = 30, 10

rng = np.random.default_rng(1)
points = rng.normal(size=(BATCHES, 64, 2))
labels = (points**2).sum(axis=2) < 1
weights = np.zeros(6)

for epoch in tqdm(range(1, EPOCHS + 1), file=sys.stdout, unit="epoch", ncols=80):
    losses = []
    for batch, inside in zip(points, labels, strict=True):
        x, y = batch.T
        features = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y])
        chance = 1 / (1 + np.exp(-weights @ features))
        weights += 0.3 * features @ (inside - chance) / len(batch)
        losses.append(-np.log(np.where(inside, chance, 1 - chance)).mean())
        time.sleep(0.015)  # a larger network would take as long
    accuracy = round(float(((chance > 0.5) == inside).mean()), 3)
    record = {"epoch": epoch, "loss": round(float(np.mean(losses)), 4), "accuracy": accuracy}
    tqdm.write(json.dumps(record), file=sys.stdout)
