"""A training run of some seconds, typical of a cluster: a small network learns to separate two
spirals.

The program does not depend on logshipper. `logshipper run -- python train.py` reduces its output:

- each JSON line (a record of one epoch) to a row of the metadata table and a point of the graphs,
- each progress bar to its last state,
- the warning of every batch to one line and a count,
- the text between the two /LOGCOMMAND lines to nothing.

It needs numpy and tqdm.
"""

import argparse
import json
import logging
import sys

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

Array = NDArray[np.float64]

TOKEN = "tok-4f1b77a2c9-not-a-real-one"  # noqa: S105  stands for a password that some library prints
CYAN, BOLD, PLAIN = ("\033[36m", "\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "", "")

log = logging.getLogger("train")


def two_spirals(points: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return points (n, 2) on two spirals that wind around each other, and each point's spiral
    (n,): 0 or 1."""
    label = rng.integers(0, 2, points)
    turn = np.sqrt(rng.random(points)) * 3 * np.pi
    angle = turn + label * np.pi
    noise = rng.normal(scale=0.15, size=(points, 2))
    position = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) + noise
    return position / (3 * np.pi), label.astype(np.float64)


class Network:
    """Two layers: 2 inputs -> hidden units with tanh -> 1 logit. Trained by Adam."""

    def __init__(self, hidden: int, rng: np.random.Generator) -> None:
        self.weights = [
            rng.normal(scale=3.0, size=(2, hidden)),
            rng.normal(scale=1.0, size=hidden),
            rng.normal(scale=0.05, size=(hidden, 1)),
            np.zeros(1),
        ]
        self.momentum = [np.zeros_like(weight) for weight in self.weights]
        self.variance = [np.zeros_like(weight) for weight in self.weights]
        self.steps = 0

    def predict(self, inputs: Array) -> Array:
        """Return the probability (n,) that each input (n, 2) is of class 1."""
        return self._forward(inputs)[1]

    def _forward(self, inputs: Array) -> tuple[Array, Array]:
        w1, b1, w2, b2 = self.weights
        hidden = np.tanh(inputs @ w1 + b1)
        logit = (hidden @ w2 + b2)[:, 0]
        return hidden, 1 / (1 + np.exp(-logit))

    def train_batch(self, inputs: Array, labels: Array, lr: float) -> float:
        """Do one step of gradient descent; return the batch's loss (binary cross-entropy)."""
        hidden, probability = self._forward(inputs)
        d_logit = (probability - labels)[:, None] / len(labels)
        d_hidden = (d_logit @ self.weights[2].T) * (1 - hidden**2)
        gradients = [
            inputs.T @ d_hidden,
            d_hidden.sum(axis=0),
            hidden.T @ d_logit,
            d_logit.sum(axis=0),
        ]
        self._adam(gradients, lr)
        return cross_entropy(probability, labels)

    def _adam(self, gradients: list[Array], lr: float) -> None:
        self.steps += 1
        for weight, gradient, m, v in zip(
            self.weights, gradients, self.momentum, self.variance, strict=True
        ):
            m[:] = 0.9 * m + 0.1 * gradient
            v[:] = 0.999 * v + 0.001 * gradient**2
            rate = lr / (1 - 0.9**self.steps)
            weight[:] -= rate * m / (np.sqrt(v / (1 - 0.999**self.steps)) + 1e-8)


def cross_entropy(probability: Array, labels: Array) -> float:
    right = np.where(labels == 1, probability, 1 - probability)
    return float(-np.log(np.clip(right, 1e-12, 1)).mean())


def fetch_token() -> None:
    """Print a secret between two commands. The terminal and the job's own file show it; the log
    does not."""
    print('/LOGCOMMAND {"mode":"disabled"}')
    print(f"logged in to the data server with token {TOKEN}")
    print('/LOGCOMMAND {"mode":"enabled"}')


def train(epochs: int, batches: int, batch_size: int, hidden: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, labels = two_spirals(batches * batch_size, rng)
    held_out, held_out_labels = two_spirals(2000, rng)
    network = Network(hidden, rng)
    print(json.dumps({"model": "mlp", "hidden": hidden, "batch_size": batch_size, "seed": seed}))
    print("\n\n")

    for epoch in tqdm(range(1, epochs + 1), desc="epochs", unit="epoch"):
        lr = 0.02 * 0.5 ** (4 * epoch / epochs)
        order = rng.permutation(len(inputs)).reshape(batches, batch_size)
        losses = []
        for batch in tqdm(order, desc=f"epoch {epoch}", unit="batch", leave=False):
            losses.append(network.train_batch(inputs[batch], labels[batch], lr))
            log.warning(
                "DeprecationWarning: `accuracy_sum` is deprecated, use `accuracy` (train.py)"
            )
        # tqdm.write prints a line above the bars; json.dumps makes it JSON (a dict's repr would not
        # be)
        tqdm.write(
            json.dumps(
                {"epoch": epoch, "loss": round(float(np.mean(losses)), 5), "lr": round(lr, 6)}
            )
        )
        if epoch % 4 == 0 or epoch == epochs:
            probability = network.predict(held_out)
            accuracy = float(((probability > 0.5) == held_out_labels).mean())
            loss = cross_entropy(probability, held_out_labels)
            tqdm.write(
                json.dumps(
                    {"epoch": epoch, "val/acc": round(accuracy, 4), "val/loss": round(loss, 5)}
                )
            )

    print(
        f"\n\n{BOLD}done{PLAIN}: {CYAN}{accuracy:.1%}{PLAIN} of the held-out points are told apart"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small network on two spirals.")
    parser.add_argument(
        "--epochs", type=int, default=24, help="passes over the data (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=7, help="of data and weights (default: %(default)s)"
    )
    parser.add_argument(
        "--fast", action="store_true", help="a network and data so small that it takes a blink"
    )
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs takes a number from 1 on")
    logging.basicConfig(format="%(levelname)s %(message)s")
    print(f"{BOLD}two spirals{PLAIN}, {options.epochs} epochs")
    fetch_token()
    batches, batch_size, hidden = (12, 32, 16) if options.fast else (20, 384, 1024)
    with logging_redirect_tqdm():  # prints log lines above the bars as well
        train(options.epochs, batches, batch_size, hidden, options.seed)


if __name__ == "__main__":
    main()
