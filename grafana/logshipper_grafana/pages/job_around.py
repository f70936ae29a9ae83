"""What was around the job: its nodes, and other jobs of its user."""

from logshipper_grafana.parts import links, queries
from logshipper_grafana.parts.panels import Json, field, link, prometheus, table, time_graph
from logshipper_grafana.parts.transforms import as_time, merge_rows, organize, rows_with


def nodes() -> list[Json]:
    nodes = 'instance=~"(${host:pipe})([.:].*)?"'
    gpus = 'Hostname=~"(${host:pipe})([.].*)?"'
    no_value = "nothing of these nodes in Prometheus"
    graphs = (
        (
            "CPU in use",
            "Share of all cores of each node that wasn't idle, by all that ran there: node_exporter.",
            f'1 - avg by(instance)(rate(node_cpu_seconds_total{{{nodes}, mode="idle"}}[$__rate_interval]))',
            "{{instance}}",
            "percentunit",
        ),
        (
            "Memory in use",
            "Of each node, by all that ran there: node_exporter.",
            f"node_memory_MemTotal_bytes{{{nodes}}} - node_memory_MemAvailable_bytes{{{nodes}}}",
            "{{instance}}",
            "bytes",
        ),
        (
            "GPU in use",
            "Share of time in which each GPU did something: DCGM's exporter.",
            f"DCGM_FI_DEV_GPU_UTIL{{{gpus}}} / 100",
            "{{Hostname}} GPU {{gpu}}",
            "percentunit",
        ),
        (
            "GPU memory in use",
            "Of each GPU: DCGM's exporter.",
            f"DCGM_FI_DEV_FB_USED{{{gpus}}} * 1048576",
            "{{Hostname}} GPU {{gpu}}",
            "bytes",
        ),
    )
    return [
        time_graph(
            title,
            description,
            [prometheus(expr, legend=legend)],
            width=12,
            unit=unit,
            no_value=no_value,
        )
        for title, description, expr, legend, unit in graphs
    ]


def same_user() -> Json:
    info = "logshipper_job_info"
    cluster = 'cluster="${cluster:raw}"'
    users = f"group by(user)({queries.job_max(info)})"
    jobs = f"max by(user, job_id, name)(last_over_time({info}{{{cluster}}}[$__range])) and on(user) {users}"
    started = f"max by(job_id)(last_over_time(logshipper_job_start_time_seconds{{{cluster}}}[$__range])) * 1000"
    to_job = links.page(links.JOB, job="${__value.text:percentencode}")
    return table(
        "Captured jobs of the same user in this time",
        "A click on a job opens it, with the same time range.",
        [
            prometheus(f"topk(200, {jobs})", instant=True, table=True, ref="A"),
            prometheus(started, instant=True, table=True, ref="B"),
        ],
        height=8,
        transformations=[
            merge_rows(),
            organize(
                renamed={"Value #B": "started"},
                order=["job_id", "name", "user", "Value #B"],
                hidden=["Time", "Value #A"],
            ),
            rows_with("user"),
            as_time("started"),
        ],
        overrides=[field("job_id", links=[link("Open ${__value.text}", to_job)])],
    )
