"""Short names of compared jobs: their differences, such as `lr=0.3`. Pure."""

from collections.abc import Mapping, Sequence

from logshipper_observe.base.words import number
from logshipper_observe.model.properties import number_of

MAX_PARTS = 4
VALUE_CHARS = 24


class RunLabels:
    """names: of the jobs; options: of each, texts by name, those that are named first come first."""

    def __init__(
        self, names: Sequence[str], ids: Sequence[str], options: Sequence[Mapping[str, str]]
    ) -> None:
        self._names = names
        self._ids = ids
        self._options = options

    def labels(self) -> list[str]:
        """Return the jobs' names if they differ; else the fewest options that tell the jobs apart,
        those with few values first, or ids."""
        if len(set(self._names)) == len(self._names):
            return list(self._names)
        parts = [[name] if len(set(self._names)) > 1 else [] for name in self._names]
        for option in self._dividing():
            for part, values in zip(parts, self._options, strict=True):
                if option in values:
                    part.append(f"{option}={_short(values[option])}")
        labels = [", ".join(part) or name for part, name in zip(parts, self._names, strict=True)]
        return [
            f"{label} {job_id}" if labels.count(label) > 1 else label
            for label, job_id in zip(labels, self._ids, strict=True)
        ]

    def _dividing(self) -> list[str]:
        """Return options of which each tells jobs apart that the earlier ones do not."""
        options = dict.fromkeys(option for values in self._options for option in values)
        columns = {option: [values.get(option) for values in self._options] for option in options}
        candidates = sorted(
            (option for option in options if len(set(columns[option])) > 1),
            key=lambda option: len(set(columns[option])),
        )
        groups: list[tuple[str | None, ...]] = [(name,) for name in self._names]
        chosen: list[str] = []
        for option in candidates:
            finer = [(*group, value) for group, value in zip(groups, columns[option], strict=True)]
            if len(set(finer)) > len(set(groups)) and len(chosen) < MAX_PARTS:
                chosen.append(option)
                groups = finer
        return [option for option in options if option in chosen]


def _short(text: str) -> str:
    value = number_of(text)
    if isinstance(value, float) and len(text) > 8:
        return number(value)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"
