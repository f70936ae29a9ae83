"""The node agent: wiring of one process that serves all captures of a node, of all users, as they
appear.

main thread   looks for captures, follows them for /metrics (learner), removes what is over
shipper       one for each Loki: rounds to it; waits there as long as it takes, and nobody else does
socket        gives `logshipper run` directories
telegraf      passes on what jobs send as to Telegraf, where that is set up
metrics       answers scrapes
remote write  sends what /metrics shows, where that is set up
slurm         on Slurm's controller, one for each Loki: asks it which jobs were captured, sends it how
              these ended
"""

import _thread
import fcntl
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType

from logshipper import __version__
from logshipper.errors import LogshipperError, SpoolError, StoreError, os_words
from logshipper.fault_points import fault_point
from logshipper.private_folder import make_private_folder
from logshipper.process.terminal import fill_standard_fds
from logshipper_ingest.agent.descriptors import most_captures, raise_file_limit
from logshipper_ingest.agent.heap import keep_freed_memory
from logshipper_ingest.agent.job_socket import JobSocket
from logshipper_ingest.agent.learner import Learner
from logshipper_ingest.agent.node_spool import open_own_folder
from logshipper_ingest.agent.service_notify import ServiceNotifier
from logshipper_ingest.agent.sink_course import SinkCourse
from logshipper_ingest.agent.spool_limits import SpoolLimits
from logshipper_ingest.agent.spool_overuse import SpoolOveruse
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.loki_section import FIRST_SINK
from logshipper_ingest.console.service_log import Kind, LastNotice, LogLine, Notice, dropped_count
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.console.throttled_log import ThrottledLog
from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.metrics_server import MetricsServer
from logshipper_ingest.metrics.remote_write import RemoteWrite, RemoteWriteMetrics, own_labels
from logshipper_ingest.shipping.disk_metrics import DiskMetrics
from logshipper_ingest.shipping.followed_capture import FollowedCapture
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life, list_folders
from logshipper_ingest.spool.folder_removal import remove_remains
from logshipper_ingest.state.checkpoints import KEPT_NS, STATE_FILE, Checkpoints
from logshipper_ingest.state.sink_states import SINKS_NOTE, removed_sinks
from logshipper_ingest.telegraf.router import TelegrafRouter, set_mark

UNUSED_SECS = 3600.0  # how long a directory that nobody writes into is kept
TELL_SECS = 2.0  # between two notes for `status`
FORGET_SECS = 3600.0
RETRY_SECS = 60.0  # after which a capture that couldn't be followed is looked at again
LAST_WORDS_SECS = 2.0  # for remote write, when the agent ends

Say = Callable[[str], None]


class NodeAgent:
    """Raises LogshipperError where it can't start: another agent at work, folders, the port."""

    def __init__(self, config: AgentConfig, say: Say) -> None:
        fill_standard_fds()  # before a file of ours gets the number of one that the caller had closed
        self._config = config
        self._say = say = _safe_say(say)
        self._stop = threading.Event()
        self._ending = False  # a signal came
        self._socket = JobSocket(config.agent, say) if config.agent.socket else None
        self._socket_counts: Counter[str] = Counter()
        self._captures: dict[str, FollowedCapture] = {}
        self._has_looked = False  # for captures, once at least
        self._sinks_noted = False
        self._waiting_count = 0  # captures for which there are no descriptors
        self._most_captures = 1
        self._crowded = ThrottledLog(say)
        self._retries: dict[str, tuple[float, str]] = {}  # not before, reason
        self._begun_ns = (
            time.time_ns() - time.monotonic_ns()
        )  # the clock when the monotonic one was 0
        with ExitStack() as undo:
            self._lock = _take_lock(config.agent.state_dir)
            undo.callback(os.close, self._lock)
            self._spool_fd = _open_spool(config.agent.spool_dir)
            undo.callback(os.close, self._spool_fd)
            _lock_spool(self._spool_fd, config.agent.spool_dir)
            self._checkpoints = Checkpoints(os.path.join(config.agent.state_dir, STATE_FILE))
            undo.callback(self._checkpoints.close)
            self._assemble(config, say)
            undo.pop_all()

    def _assemble(self, config: AgentConfig, say: Say) -> None:
        self._metrics = AgentMetrics(config.agent.cluster, config.agent.host)
        jobs = JobMetrics(config.metrics, config.agent.cluster, config.agent.host, log=say)
        self._job_metrics = jobs
        self._learner = Learner(
            self._checkpoints,
            jobs,
            self._metrics,
            config.agent.poll_secs,
            say,
            names_users=config.metrics.job_values,
        )
        self._disks = DiskMetrics(
            self._metrics, {"spool": config.agent.spool_dir, "state": config.agent.state_dir}
        )
        self._sinks: list[SinkCourse] = []
        try:
            for sink_config in config.sinks:
                self._sinks.append(
                    SinkCourse(sink_config, self._checkpoints, self._metrics, self._stop, say, jobs)
                )
        except BaseException:
            for sink in self._sinks:
                sink.close()
            raise
        self._new_sinks = self._find_new_sinks()
        slurm = [sink.slurm for sink in self._sinks if sink.slurm is not None]
        self._slurm = slurm[0] if slurm else None
        for receiver in slurm[1:]:
            slurm[0].give(receiver)
        self._remote_write = (
            self._make_remote_write(config) if config.remote_write.access.url else None
        )
        self._limits = SpoolLimits(config.agent, say)
        self._overuse = SpoolOveruse(config.agent, say)
        self._reported_taken_count = 0  # captures taken away, in the metrics already
        self._reported_lines_count = 0  # lines that the journal had no room for, likewise
        self._telegraf = TelegrafRouter(config, say) if config.telegraf.enabled else None
        self._telegraf_counts: Counter[str] = Counter()
        self._server: MetricsServer | None = None
        self._threads: list[threading.Thread] = []
        self._service = ServiceNotifier(os.environ)
        self._report_due = self._forget_due = 0.0
        self._notes: dict[str, object] = {}

    def _make_remote_write(self, config: AgentConfig) -> RemoteWrite:
        labels = own_labels(config.agent.cluster, config.agent.host)
        metrics = RemoteWriteMetrics(self._metrics.registry)
        return RemoteWrite(config.remote_write, labels, self._export, metrics, self._say)

    def _export(self) -> str:
        return exposition(self._metrics, self._job_metrics)[0].decode()

    def _find_new_sinks(self) -> list[Checkpoints]:
        """Checkpoints of those that weren't there when the agent ran last: they may come in the
        midst of captures."""
        labels = self._checkpoints.note(SINKS_NOTE) or [FIRST_SINK]
        new_sinks = [sink for sink in self._sinks if sink.config.label not in labels]
        for sink in new_sinks:
            self._say(
                Notice(
                    f"[{sink.config.table}] is new: it gets what is in the spool now, "
                    "and all that comes"
                )
            )
        for name in removed_sinks(self._config):
            label = name or FIRST_SINK
            self._say(
                f"the sink {label} isn't in the configuration any more: nothing waits for it. "
                f"How far it was, and its quarantine, are kept until `logshipper-agent forget {label}`"
            )
        return [sink.checkpoints for sink in new_sinks]

    # ---- the course

    def run(self) -> None:
        """Until SIGTERM or SIGINT; what is under way then goes on where the next agent starts."""
        raise_file_limit()
        self._most_captures = most_captures(len(self._sinks))
        keep_freed_memory()
        for signo in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signo, self._on_signal)
        # a terminal that goes isn't the end of a node's logs
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            section = self._config.metrics
            server = MetricsServer(
                section.listen, self._metrics, self._job_metrics, self._say, section.access
            )
        except BaseException:
            self._end()
            raise
        self._server = server
        socket = self._socket
        threads = self._threads = [
            thread for sink in self._sinks for thread in sink.threads(self._to_ship)
        ]
        remote_write = self._start_remote_write()
        try:
            self._start_telegraf()
            if socket is not None:
                socket.start()
            for thread in threads:
                thread.start()
            self._say(Notice(self._ready_words(server.port), Kind.READY))
            self._service.ready()
            self._serve()
        finally:
            self._service.stopping()
            self._begin_stop()
            if socket is not None:
                socket.close()
            if self._telegraf is not None:
                self._telegraf.close()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            if remote_write is not None and self._remote_write is not None:
                remote_write.join(LAST_WORDS_SECS)
                if remote_write.is_alive():
                    self._remote_write.log_unsent()
            server.close()
            self._end()
            if self._ending:
                self._say(LastNotice("stopped"))
            for signo in (signal.SIGTERM, signal.SIGINT):
                # Python's own end would give a second one its default: killed
                signal.signal(signo, signal.SIG_IGN)

    def _start_remote_write(self) -> threading.Thread | None:
        """Nobody waits long for its end: it may be in the middle of a push that nobody answers."""
        if self._remote_write is None:
            return None
        thread = threading.Thread(
            target=self._remote_write.run, args=(self._stop,), name="remote write", daemon=True
        )
        thread.start()
        return thread

    def _start_telegraf(self) -> None:
        if self._telegraf is not None:
            self._telegraf.start()
        set_mark(self._config.agent.spool_dir, enabled=self._telegraf is not None)

    def _on_signal(self, signo: int, frame: FrameType | None) -> None:
        """Another thread sets the event: what was interrupted here may hold its lock, for good
        then."""
        if not self._ending:
            self._ending = True
            _thread.start_new_thread(self._begin_stop, ())

    def _begin_stop(self) -> None:
        self._stop.set()
        self._wake()

    def _wake(self) -> None:
        for sink in self._sinks:
            sink.wake.set()

    def _ready_words(self, port: int) -> str:
        agent = self._config.agent
        metrics_words = f"/metrics on port {port}" if port else "no /metrics"
        urls = " and ".join(sink.config.url for sink in self._sinks)
        return (
            f"ready: {agent.spool_dir} to {urls}, as {agent.cluster}/{agent.host}; {metrics_words}"
        )

    def _serve(self) -> None:
        trouble = ThrottledLog(self._say)
        while not self._stop.is_set():
            try:
                self._turn()
                trouble.reset()
            except (
                LogshipperError,
                OSError,
            ) as error:  # a full disk, most likely: it may have room again
                trouble.log(f"{error}; tried again")
                self._stop.wait(TELL_SECS)
            except (
                Exception
            ) as error:  # a spool is hostile: a fault that it finds must not end the agent for all
                trouble.log(f"a fault of logshipper's own: {error!r}; tried again")
                self._stop.wait(TELL_SECS)
            if all(
                thread.is_alive() for thread in self._threads
            ):  # else systemd's watchdog restarts it
                self._service.alive()
            self._stop.wait(0.0 if self._learner.is_behind else self._config.agent.poll_secs)

    def _turn(self) -> None:
        self._look()
        captures = list(self._captures.values())
        if self._learner.turn(captures):
            self._wake()
        if self._telegraf is not None:
            self._telegraf.update(captures)
        for capture in captures:
            if capture.is_over and not self._remove(capture):
                break  # so much for this turn
        if self._slurm is not None:
            self._slurm.take()
        self._report(list(self._captures.values()))
        self._note_sinks()  # last: limits and /metrics go on where its disk is full
        self._learner.save(captures)

    def _end(self) -> None:
        captures = list(self._captures.values())
        try:
            self._learner.save(captures, at_once=True)
        finally:
            for sink in self._sinks:
                sink.close()
            for capture in captures:
                capture.close()
            self._checkpoints.close()
            self._service.close()
            os.close(self._spool_fd)
            os.close(self._lock)

    # ---- captures come and go

    def _look(self) -> None:
        now = time.monotonic()
        names = list_folders(self._spool_fd)
        new = [
            name
            for name in names
            if name not in self._captures and now >= self._retries.get(name, (0.0, ""))[0]
        ]
        self._waiting_count = self._follow_all(new)
        present = set(names)
        self._retries = {name: retry for name, retry in self._retries.items() if name in present}
        for name in [name for name in self._captures if name not in present]:
            self._say(self._captures[name].line("somebody removed it from the spool"))
            self._drop(name)
        self._has_looked = True

    def _note_sinks(self) -> None:
        """For the agent's next start. Not while captures wait: a new sink is new to them as
        well."""
        if not self._sinks_noted and not self._waiting_count:
            self._checkpoints.put_notes({SINKS_NOTE: [sink.config.label for sink in self._sinks]})
            self._sinks_noted = True

    def _follow_all(self, names: list[str]) -> int:
        """As many as there are descriptors for; at first those that were begun. Returns how many
        wait."""
        if not self._has_looked:
            begun_folders = {
                folder for sink in self._sinks for folder in sink.checkpoints.folders()
            }
            names = sorted(names, key=lambda name: name not in begun_folders)
        leaving_count = max((sink.leaving_count for sink in self._sinks), default=0)
        waiting_count = 0
        for name in names:
            if len(self._captures) + leaving_count < self._most_captures:
                self._follow(name)
            else:
                waiting_count += 1
        if waiting_count:
            self._crowded.log(
                f"{self._most_captures} captures are followed at a time, what there are file descriptors for; further "
                "ones wait in the spool until some are shipped: raise LimitNOFILE (`ulimit -n`)"
            )
        else:
            self._crowded.reset()
        return waiting_count

    def _follow(self, name: str) -> None:
        spool = self._config.agent.spool_dir
        try:
            folder = CaptureFolder(self._spool_fd, spool, name, os.geteuid(), node=True)
        except FileNotFoundError:
            return  # removed meanwhile
        except (LogshipperError, OSError) as error:
            if not remove_remains(self._spool_fd, name):
                self._refuse(name, str(error))
            return
        try:
            identity = folder.identity(complete=True)
            if identity is None:
                raise StoreError(folder.path, "doesn't say whose it is")
            if folder.is_unused():
                self._leave_unused(folder)
                return
            sinks = [sink.checkpoints for sink in self._sinks]
            self._captures[name] = FollowedCapture(
                folder, self._checkpoints, identity, sinks, self._new_sinks
            )
        except (LogshipperError, OSError) as error:
            folder.close()
            self._refuse(name, str(error))

    def _refuse(self, name: str, words: str) -> None:
        if self._retries.get(name, (0.0, ""))[1] != words:
            self._say(LogLine(f"{name}: {words}", capture=name))
        self._retries[name] = (time.monotonic() + RETRY_SECS, words)

    def _leave_unused(self, folder: CaptureFolder) -> None:
        """It was made for a job that hasn't printed, or never will; or an agent died while it
        removed it."""
        if self._overuse.removes_unused(folder):
            folder.close()
            return
        # setting the clock makes nothing old: its sidecar may be about to begin
        now_ns = min(time.time_ns(), self._begun_ns + time.monotonic_ns())
        old = now_ns - folder.begun_ns() > UNUSED_SECS * 1e9
        checkpoints = [
            checkpoint
            for sink in self._sinks
            for checkpoint in sink.checkpoints.shipped(folder.key)
        ]
        if any(checkpoint.done for checkpoint in checkpoints) or (
            old and folder.life() is Life.DEAD
        ):
            folder.remove()
        folder.close()

    def _remove(self, capture: FollowedCapture) -> bool:
        """False where there is more to remove than one turn should."""
        try:
            if not capture.folder.remove():
                return False
            fault_point("capture_removed")
            self._learner.forget(capture)
        except OSError as error:  # the others go on; it is left in the spool, and tried again
            words = os_words(error)
            self._refuse(capture.folder.name, f"is shipped, but can't be removed: {words}")
        self._drop(capture.folder.name)
        return True

    def _drop(self, name: str) -> None:
        capture = self._captures.pop(name)
        for sink in self._sinks:
            sink.drop(capture)

    def _to_ship(self) -> list[FollowedCapture]:
        """Called by the shippers between two rounds."""
        # what goes first may not be there yet
        return list(self._captures.values()) if self._has_looked else []

    # ---- reports

    def _report(self, captures: list[FollowedCapture]) -> None:
        now = time.monotonic()
        if now < self._report_due:
            return
        self._report_due = now + TELL_SECS
        self._job_metrics.expire(time.time_ns())
        self._limits.turn(captures)
        self._overuse.turn(captures)
        self._measure(captures)
        notes: dict[str, object] = {
            "agent": {"pid": os.getpid(), "version": __version__, **vars(self._config.agent)},
        }
        if self._overuse.latest:
            notes["taken"] = self._overuse.latest
        if self._server is not None and self._config.metrics.listen:
            notes["metrics"] = {
                "listen": self._config.metrics.listen,
                "trouble": self._server.trouble,
            }
        if self._remote_write is not None:
            url = self._config.remote_write.access.url
            notes["remote_write"] = {"url": url, **self._remote_write.state._asdict()}
        if self._telegraf is not None:
            telegraf = self._telegraf
            lines, trouble = dict(telegraf.counts), telegraf.trouble
            notes["telegraf"] = {"listen": telegraf.address, "lines": lines, "trouble": trouble}
        self._service.status(self._status_text(len(captures)))
        if notes != self._notes:
            self._checkpoints.put_notes(notes)
            self._notes = notes
        for sink in self._sinks:
            sink.save_notes()
        if now >= self._forget_due:
            self._forget_due = now + FORGET_SECS
            present = list_folders(self._spool_fd)
            for checkpoints in {self._checkpoints, *(sink.checkpoints for sink in self._sinks)}:
                checkpoints.forget(present, time.time_ns() - KEPT_NS)

    def _status_text(self, captures: int) -> str:
        troubles = [words for words in (sink.trouble_text() for sink in self._sinks) if words]
        return f"{plural(captures, 'capture')}; {'; '.join(troubles) or 'Loki takes everything'}"

    def _measure(self, captures: list[FollowedCapture]) -> None:
        lives = dict.fromkeys(Life, 0)
        for capture in captures:
            lives[capture.life] += 1
        for life, count in lives.items():
            self._metrics.captures.labels(life.value).set(count)
        self._metrics.limited.labels("soft").set(self._limits.slow)
        self._metrics.limited.labels("hard").set(self._limits.stopped)
        taken_count = self._overuse.taken_counts.total()
        self._metrics.left_out.labels("captures_taken").inc(
            taken_count - self._reported_taken_count
        )
        self._reported_taken_count = taken_count
        lines_count = dropped_count()
        self._metrics.left_out.labels("log_lines").inc(lines_count - self._reported_lines_count)
        self._reported_lines_count = lines_count
        for sink in self._sinks:
            sink.measure(captures)
        self._disks.measure()
        if self._socket is not None:
            self._measure_socket(self._socket)
        if self._telegraf is not None:
            self._measure_telegraf(self._telegraf)

    def _measure_telegraf(self, telegraf: TelegrafRouter) -> None:
        """As below."""
        counts = telegraf.counts
        for outcome, count in (counts - self._telegraf_counts).items():
            self._metrics.telegraf_lines.labels(outcome).inc(count)
        self._metrics.telegraf_connections.set(telegraf.connections)
        self._metrics.telegraf_down.set(bool(telegraf.trouble))
        self._telegraf_counts = counts

    def _measure_socket(self, socket: JobSocket) -> None:
        """Its own thread counts; what has come since the last look is added here."""
        counts = Counter({**socket.refusals, "made": socket.capture_count})
        for reason, count in (counts - self._socket_counts).items():
            metrics = self._metrics
            (
                metrics.socket_captures
                if reason == "made"
                else metrics.socket_refusals.labels(reason)
            ).inc(count)
        self._socket_counts = counts


def _safe_say(say: Say) -> Say:
    """A log that nobody reads any more, or that was never there, must not end the agent, nor one of
    its threads."""

    def say_safely(words: str) -> None:
        try:
            say(words)
        except (OSError, ValueError, AttributeError):
            pass

    return say_safely


def _open_spool(path: str) -> int:
    try:
        return open_own_folder(path)
    except SpoolError as error:
        names_option = "[agent] spool_dir" in error.reason
        raise SpoolError(
            error.path, error.reason if names_option else f"{error.reason} ([agent] spool_dir)"
        ) from None
    except OSError as error:
        reason = f"{os_words(error)}; [agent] spool_dir names another place"
        raise SpoolError(error.filename or path, reason) from None


def _lock_spool(spool_fd: int, path: str) -> None:
    """Until the folder is closed. Users can't open it, so nobody else can lock it."""
    try:
        fcntl.flock(spool_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SpoolError(path, "another agent is at work with this [agent] spool_dir") from None
    except OSError:
        pass  # a file system without locks


def _take_lock(state_dir: str) -> int:
    path = os.path.join(state_dir, "agent.lock")
    option = "[agent] state_dir"
    try:
        make_private_folder(state_dir)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except SpoolError as error:
        reason = error.reason.replace("--store or LOGSHIPPER_STORE", option).replace(
            "--store", option
        )
        raise StoreError(
            error.path, reason if option in reason else f"{reason}; {option} names one"
        ) from None
    except OSError as error:
        reason = f"{os_words(error)}; {option} names its folder"
        raise StoreError(path, reason) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StoreError(path, "another agent is at work with this [agent] state_dir") from None
    try:
        # in this order: no new room is needed
        os.ftruncate(fd, os.pwrite(fd, b"%d\n" % os.getpid(), 0))
    except OSError as error:
        os.close(fd)
        raise StoreError(
            path, f"{os_words(error)}: free some room there; {option} names its folder"
        ) from None
    return fd
