"""The job's use of its nodes, with exporters: a verdict in words, and graphs."""

from logshipper_grafana.parts import Json, colors, exporters, transforms
from logshipper_grafana.parts.exporters import Measure
from logshipper_grafana.parts.panels import PAGE_WIDTH, field, prometheus, table, time_graph

_ALARMS = (exporters.UNUSED, exporters.IS_NEAR, f"{exporters.LOW}$")
_COLORS = {"|".join(_ALARMS): colors.RED, f"^{exporters.ALL_USED}": colors.GREEN, ".*": colors.GREY}


def verdict() -> Json:
    """Return the verdict over 500 moments of the page's time, which takes 0.2 s of Prometheus' CPU."""
    mappings = [
        {
            "type": "regex",
            "options": {
                "pattern": f"/{pattern}/",
                "result": {"color": colors.of_word(color), "index": index},
            },
        }
        for index, (pattern, color) in enumerate(_COLORS.items())
    ]
    return table(
        "What the job used: verdict",
        "Of the chosen attempt in the page's time, by exporters on its nodes that tell of this job alone: GPUs and "
        "cores that it has and doesn't use, memory next to its limit.",
        [prometheus(exporters.verdict(), table=True)],
        height=4,
        options={"showHeader": False},
        transformations=[
            transforms.sort_by("Value", newest_first=True),
            transforms.organize(hidden=["Time", "Value"]),
        ],
        overrides=[field("words", mappings=mappings, custom__displayMode="color-text")],
        interval="15s",
        points=500,
        no_value=exporters.NOT_TOLD,
    )


def graphs() -> list[Json]:
    return [
        _graph(
            "CPU",
            "Cores in use, next to those that the job has.",
            "suffix: cores",
            exporters.CPU,
            allocated=exporters.CORES,
        ),
        _graph(
            "Memory",
            "In use, without the page cache, next to its limit.",
            "bytes",
            exporters.MEMORY,
            limit=exporters.MEMORY_LIMIT,
        ),
        _graph(
            "GPUs",
            "Share of time in which each GPU of the job did something.",
            "percentunit",
            exporters.GPU,
        ),
        _graph(
            "GPU memory",
            "In use on each GPU of the job, next to what the GPU has.",
            "bytes",
            exporters.GPU_MEMORY,
            total=exporters.GPU_MEMORY_TOTAL,
        ),
    ]


def _graph(title: str, description: str, unit: str, used: Measure, **others: Measure) -> Json:
    """Return a graph. others: further measures, by their names in the legend."""
    series = "{{node}} GPU {{gpu}}{{of}}" if "gpu" in used.by else "{{node}}{{of}}"
    measures = {series: used, **{f"{series}: {name}": other for name, other in others.items()}}
    return time_graph(
        title,
        f"{description} Where no exporter tells of the job: of whole nodes, by all that ran there.",
        [
            prometheus(measure.series_or_whole_nodes(), legend=legend, ref=ref)
            for ref, (legend, measure) in zip("AB", measures.items(), strict=False)
        ],
        width=PAGE_WIDTH // 2,
        unit=unit,
        no_value=exporters.NOT_TOLD,
    )
