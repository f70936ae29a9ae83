"""The job's surroundings: other jobs of its user."""

from logshipper_grafana.parts import links, queries
from logshipper_grafana.parts.panels import Json, field, link, prometheus, table
from logshipper_grafana.parts.transforms import as_time, merge_rows, organize, rows_with


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
