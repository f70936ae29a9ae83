"""Wiring of `logshipper run`: configuration, the capture's directory, relay and sidecar."""

import os
import time
from collections.abc import Callable

from logshipper import config, optin
from logshipper.background import JOB_END_NICE, yield_to_jobs
from logshipper.errors import ConfigError, SpoolError, os_words
from logshipper.masks.shape_mask import masked_text
from logshipper.process import nesting
from logshipper.process.run import RunOptions
from logshipper.process.terminal import fill_standard_fds, is_inherited
from logshipper.relay.handover import SidecarPlan
from logshipper.safe_text import safe
from logshipper.sidecar.settings import Settings, leave_to_the_node_agent
from logshipper.spool import captures
from logshipper.spool.place import Place
from logshipper.start import launchers, node_agent_socket
from logshipper.start.run_arguments import RunArguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.notify.watch import WatchedJob
    from logshipper.telegraf.listener import Sockets
    from logshipper.telegraf.measurements import Collector


def prepare(
    arguments: RunArguments, command: list[str], logoptin: tuple[str, bytes]
) -> RunOptions | None:
    """Prepare the run, and create the capture's folder. logoptin: result of `optin.look`.

    Returns None if an outer capture has all of the command's output, so that it only needs to run.
    Raises ConfigError for wrong options. If logging is impossible, a line on stderr says so, and
    the command still runs.
    """
    leave = _covered(arguments, logoptin)
    if leave is None:
        _tell_who_has_it(arguments)
        return None
    fill_standard_fds()  # before a file of ours gets the number of one that the caller had closed
    settings, problems = _configure(logoptin)
    settings = settings._replace(
        mode=arguments.mode or settings.mode,
        tty=settings.tty and not arguments.no_tty,
        mask=settings.mask and not arguments.no_mask,
        context=False if arguments.no_context else settings.context,
        notify=_notify(arguments.notify, settings.notify),
    )
    name = masked_text(arguments.name or captures.default_name(command))
    takes_measurements = arguments.telegraf or arguments.telegraf_port
    telegraf = _telegraf(arguments.telegraf_port or 0) if takes_measurements else None
    place = launchers.find(os.environ)
    try:
        capture, start_agent = _make(
            arguments.store, name[: captures.NAME_MAX_CHARS], arguments.job_id, place
        )
    except SpoolError as error:
        optin.say(f"logshipper: nothing of this run is logged: {error}")
        return RunOptions(command, settings.tty, None, lambda plan: None)
    mark = os.path.join(os.path.dirname(capture.path), captures.TELEGRAF_MARK)
    if telegraf is None and os.path.lexists(mark):
        telegraf = _telegraf(0)
    collector = _collector(telegraf, capture) if telegraf is not None else None
    by_hand = not (arguments.if_opted_in or launchers.is_scheduled(place))
    by_hand = by_hand and os.environ.get("LOGSHIPPER_CONTEXT", "on") != "off"
    watched = None
    # of ranks, the first one sends
    if settings.notify is not None and (place is None or not place.task):
        watched = _watched(capture, place, is_checked=bool(arguments.notify))
    sidecar_settings = Settings(
        settings,
        problems,
        capture,
        start_agent,
        tuple(command),
        _folder(),
        launchers.nodes(os.environ),
        launchers.limit_secs(os.environ, place),
        by_hand,
        watched,
    )

    def serve(plan: SidecarPlan) -> None:
        # only in the sidecar's own process: these imports are its start-up
        from logshipper.sidecar import sidecar

        yield_to_jobs(JOB_END_NICE)  # not before: a short command's end waits for them
        sidecar.run(plan, sidecar.Sidecar(plan, sidecar_settings))

    return RunOptions(
        command,
        settings.tty,
        capture,
        serve,
        telegraf=collector,
        leave=leave,
        apart=settings.mode == "metadata",  # then stderr must give no record (R9)
        farewell=_farewell(arguments, name, capture, place),
    )


def _notify(targets: list[str] | None, setting: config.Notify | None) -> config.Notify | None:
    """Return the setting of messages with the targets of --notify, if there are any. Raises
    ConfigError for targets that can never work."""
    if not targets:
        return setting
    to = config.parse_targets("--notify", targets)
    from logshipper.notify import orders

    try:
        problems = orders.check(to, _folder())
    except OSError as error:  # TimeoutError, too
        optin.say(f"logshipper: --notify: the targets are not checked: {os_words(error)}")
        problems = []
    if problems:
        raise ConfigError("--notify", problems)
    return (setting or config.Notify(to))._replace(to=to)


def _watched(
    capture: captures.CaptureDirectory, place: Place | None, *, is_checked: bool
) -> "WatchedJob":
    from logshipper.notify.watch import HOLD_SECS, WatchedJob

    ends_at = launchers.ends_at(os.environ, place)
    return WatchedJob(
        capture.job_id,
        capture.name,
        os.uname().nodename,
        time.time(),
        _folder(),
        capture.in_user_spool,
        ends_at,
        os.environ.get("SLURM_JOB_ID", "") if not ends_at else "",
        is_checked,
        HOLD_SECS if launchers.is_scheduled(place) else 0.0,
    )


def _tell_who_has_it(arguments: RunArguments) -> None:
    """Tell a user who named a run that it is no separate job; one of several ranks does so."""
    place = launchers.find(os.environ)
    is_first = place is None or not place.task
    if arguments.notify and is_first:
        optin.say(
            "logshipper: --notify has no effect here, as the run around this one has the output: "
            "write `notify` into ~/.logoptin, or give --job-id ID"
        )
    if arguments.name and is_first and not (arguments.quiet or arguments.if_opted_in):
        around = os.environ.get("LOGSHIPPER_JOB_ID", "")
        optin.say(
            f"logshipper: {arguments.name} is no job of its own: what it prints is in the log of the run around it"
            f"{f', {around}' if around else ''} (--job-id ID captures it by itself, too)"
        )


def _farewell(
    arguments: RunArguments, name: str, capture: captures.CaptureDirectory, place: Place | None
) -> str:
    """Return the hint for a person who ran it by hand; "" for others, and inside another run, whose
    log would contain it."""
    is_hook = arguments.quiet or arguments.if_opted_in or launchers.is_scheduled(place)
    if is_hook or nesting.VARIABLE in os.environ:
        return ""
    source = "" if capture.in_user_spool else " --from loki"
    if arguments.store and capture.in_user_spool:
        import shlex

        source = f" --store {shlex.quote(arguments.store)}"
    return f"{safe(name)} is {capture.job_id}: logshipper show {capture.job_id}{source}"


def _covered(arguments: RunArguments, logoptin: tuple[str, bytes]) -> tuple[int, ...] | None:
    """Return the streams (1, 2) that an outer capture has; None for a complete capture.

    A named job or store, or `per_task: true`, asks for a separate capture.
    """
    if nesting.VARIABLE not in os.environ or arguments.job_id or arguments.store:
        return ()
    open_streams = nesting.uncovered(os.environ, launchers.is_gathered)
    leave = tuple(
        stream for stream in (1, 2) if is_inherited(stream) and stream not in open_streams
    )
    if leave and logoptin[0] == optin.PRESENT and config.parse_opt_in(logoptin[1])[0].per_task:
        return ()
    return None if leave and not open_streams else leave


def _collector(sockets: "Sockets", capture: captures.CaptureDirectory) -> "Collector | None":
    """None where no process is available for it."""
    from logshipper.telegraf.measurements import start_collector

    try:
        return start_collector(sockets, os.stat(capture.path).st_uid)
    except OSError as error:
        optin.say(f"logshipper: no measurements of this run are taken: {os_words(error)}")
        return None


def _telegraf(port: int) -> "Sockets | None":
    """Open the command's port for measurements; port 0: a free one. Raises ConfigError for an
    unavailable one."""
    from logshipper.telegraf.listener import LOOPBACK, open_sockets

    try:
        return open_sockets(LOOPBACK, port)
    except OSError as error:
        if port:
            reason = f"{port} isn't available: {os_words(error)}; another one, or --telegraf, which takes a free one"
            raise ConfigError("--telegraf-port", [reason]) from None
        optin.say(f"logshipper: no measurements of this run are taken: {os_words(error)}")
        return None


def _make(
    store: str | None, name: str, job_id: str | None, place: Place | None
) -> tuple[captures.CaptureDirectory, Callable[[], None]]:
    """Create the capture's folder, in the node's spool with an agent, else in the user's store; and
    return the function that ingests it. Raises ConfigError, SpoolError.

    With a named store, the agent is not asked.
    """
    if job_id is not None:
        captures.check_job_id(job_id)
    root = captures.store_root(store)
    if not (store or os.environ.get("LOGSHIPPER_STORE")):
        try:
            socket_path = node_agent_socket.socket_path()
            if capture := node_agent_socket.ask(socket_path, name, job_id, place):
                return capture, leave_to_the_node_agent
        except SpoolError as error:
            optin.say(f"logshipper: {error}; this run is kept in {root} instead")
    wants_agent = os.environ.get("LOGSHIPPER_AGENT", "on") != "off"

    def start_agent() -> None:
        if wants_agent:
            from logshipper_ingest.agent_start import start

            start(root)

    return captures.create_capture(root, name, job_id, place), start_agent


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _configure(logoptin: tuple[str, bytes]) -> tuple[config.Config, tuple[str, ...]]:
    """The configuration of ~/.logoptin, and its problems: then logging starts disabled (fails
    closed)."""
    state, content = logoptin
    if state == optin.ABSENT:
        return config.Config(), ()  # run by hand: that is opting in
    if state == optin.PRESENT:
        configuration, problems = config.parse_opt_in(content)
        if not problems:
            return configuration, ()
    elif state == optin.REFUSED:
        problems = (content.decode("utf-8", "replace"),)
    else:
        problems = (f"couldn't be looked at within {optin.LOOK_SECS:g} s",)
    optin.say(
        f"logshipper: ~/.logoptin: {'; '.join(problems)}; nothing is logged until a /LOGCOMMAND says so "
        "(`logshipper check` tells more)"
    )
    return config.Config(mode="disabled"), problems
