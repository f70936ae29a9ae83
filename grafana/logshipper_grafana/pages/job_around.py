"""The job's surroundings: other jobs of its user."""

from logshipper_grafana.parts import Json, links, queries, run_queries, transforms
from logshipper_grafana.parts.panels import field, prometheus, table


def same_user() -> Json:
    info = "logshipper_job_info"
    users = f"group by(user)({queries.job_max(info)})"
    jobs = f"max by(user, job_id, name)({run_queries.last_values(info)}) and on(user) {users}"
    started = run_queries.last_values("logshipper_job_start_time_seconds")
    started = f"max by(job_id)({started}) * 1000"
    return table(
        "Captured jobs of the same user in this time",
        "A click on a job opens it, with the same time range.",
        [
            prometheus(f"topk(200, {jobs})", table=True, ref="A"),
            prometheus(started, table=True, ref="B"),
        ],
        height=8,
        transformations=[
            transforms.merge_rows(),
            transforms.organize(
                {"Value #B": "started"},
                order=["job_id", "name", "user", "Value #B"],
                hidden=["Time", "Value #A"],
            ),
            transforms.rows_with("user"),
            transforms.as_time("started"),
        ],
        overrides=[field("job_id", links=links.of_job())],
    )
