"""How long random tests run: some seconds each in `make test`, as long as wanted in `make
model`."""

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = os.environ.get("LOGSHIPPER_MODEL_EXAMPLES")  # of each test, instead of its own number
MANY_EXAMPLES = _EXAMPLES is not None


def examples(usual: int) -> int:
    """How many a property test tries."""
    return int(_EXAMPLES or usual)


def model_settings(tries: int, steps: int) -> settings:
    """Of tests that drive real parts against a simple model. tries: courses that are tried; steps:
    of each, at most."""
    return settings(
        max_examples=examples(tries),
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
