"""Length of random tests: some seconds each in `make test`, any length in `make model`."""

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = os.environ.get("LOGSHIPPER_MODEL_EXAMPLES")  # replaces each test's own number
MANY_EXAMPLES = _EXAMPLES is not None


def examples(usual: int) -> int:
    """Return the number of examples for a property test."""
    return int(_EXAMPLES or usual)


def model_settings(tries: int, steps: int) -> settings:
    """Return settings of tests that compare real parts with a simple model.

    tries: number of courses; steps: the most of each.
    """
    return settings(
        max_examples=examples(tries),
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
