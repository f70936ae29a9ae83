"""Arguments of `logshipper run`. Light: no argparse."""

USAGE_CODE = 125


class RunArguments:
    """Options of `run`, as run_options.add_run_options has them."""

    name: str | None = None
    job_id: str | None = None
    if_opted_in = False
    mode: str | None = None
    no_tty = False
    no_context = False
    no_mask = False
    quiet = False
    store: str | None = None
    telegraf = False
    telegraf_port: int | None = None
    notify: list[str] | None = None
