"""Values that the captures of a job masked by their shape."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

_EVENT = "values_masked"


def masked_values(reader: "Reader") -> dict[str, int]:
    """Sum the events of all captures: values by the name of their shape, the most frequent
    first."""
    sums: Counter[str] = Counter()
    for job_event in reader.events(names=(_EVENT,)):
        shapes = job_event.event.get("shapes")
        if isinstance(shapes, dict):
            sums.update(
                {str(name): number for name, number in shapes.items() if type(number) is int}
            )
    return dict(sums.most_common())


def masked_words(shapes: Mapping[str, int]) -> str:
    """`3 values: GitHub token`, `5 values: 3 GitHub token, 2 JSON web token`; empty for none."""
    total = sum(shapes.values())
    if not total:
        return ""
    names = (
        [f"{number:,} {name}" for name, number in shapes.items()] if len(shapes) > 1 else [*shapes]
    )
    return f"{total:,} value{'s' * (total != 1)}: {', '.join(names)}"
