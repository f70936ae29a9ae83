"""A run's metrics, a value each."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logshipper_observe.base.output import Raw
from logshipper_observe.model.records import is_number, valid_json

if TYPE_CHECKING:
    from logshipper_ingest.model.job import Json
    from logshipper_ingest.model.x_axis import KeyStats


def metrics_rollup(details: "Json", keys: "Iterable[KeyStats]") -> "Json":
    """Return XT's metrics of the run's end; of other jobs the last number of each key.

    details: an imported job's data of its own system.
    """
    reported = details.get("metrics_rollup")
    if isinstance(reported, dict) and reported:
        # late: few jobs are imported, and importers take time to load
        from logshipper_ingest.imports.xt import STEP_NAME

        return {key: value for key, value in reported.items() if key != STEP_NAME}
    return {key.key: Raw(valid_json(key.last)) for key in keys if is_number(key.last)}
