"""How long the tests run that drive real parts at random against a simple model: some seconds each in `make test`,
as long as wanted in `make model`."""

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = os.environ.get("LOGSHIPPER_MODEL_EXAMPLES")  # of each test, instead of its own number


def model_settings(examples: int, steps: int) -> settings:
    """examples: courses that are tried; steps: of each, at most."""
    return settings(
        max_examples=int(_EXAMPLES or examples),
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
