"""The node agent: one process that serves the captures of all users of a node.

main thread   finds captures, follows them for /metrics (learner), removes finished ones
shipper       one per sink: ships in rounds; only this thread waits for its server
socket        gives directories to `logshipper run`
telegraf      forwards the measurements of jobs, if configured
metrics       answers scrapes
remote write  sends the content of /metrics, if configured
slurm         on Slurm's controller, one per Loki: finds the captured jobs and sends their ends
"""

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType

from logshipper import __version__
from logshipper.errors import LogshipperError, StoreError, os_words
from logshipper.fault_points import fault_point
from logshipper.process.terminal import fill_standard_fds
from logshipper_ingest.agent.descriptors import most_captures, raise_file_limit
from logshipper_ingest.agent.exclusive_folders import (
    lock_spool,
    lock_state_folder,
    open_spool_folder,
)
from logshipper_ingest.agent.heap import collect_seldom, keep_freed_memory
from logshipper_ingest.agent.job_socket import JobSocket
from logshipper_ingest.agent.learner import Learner
from logshipper_ingest.agent.node_measures import NodeMeasures
from logshipper_ingest.agent.service_notify import ServiceNotifier
from logshipper_ingest.agent.sink_course import SinkCourse
from logshipper_ingest.agent.spool_limits import SpoolLimits
from logshipper_ingest.agent.spool_overuse import SpoolOveruse
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.loki_section import FIRST_SINK
from logshipper_ingest.console.service_log import Kind, LastNotice, LogLine, Notice
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.console.throttled_log import ThrottledLog
from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.metrics_server import MetricsServer
from logshipper_ingest.metrics.remote_write import RemoteWrite, RemoteWriteMetrics, own_labels
from logshipper_ingest.shipping.followed_capture import FollowedCapture
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life, list_folders
from logshipper_ingest.spool.folder_removal import remove_remains
from logshipper_ingest.state.checkpoints import KEPT_NS, STATE_FILE, Checkpoints
from logshipper_ingest.state.sink_states import SINKS_NOTE, removed_sinks
from logshipper_ingest.telegraf.router import TelegrafRouter, set_mark

UNUSED_SECS = 3600.0  # lifetime of a directory without a writer
TELL_SECS = 2.0  # between two notes for `status`
FORGET_SECS = 3600.0  # between two removals of old checkpoints
# from the time at which relays hand over gathered frames (channel.BEAT_SECS) to a look at these
AFTER_FRAMES_SECS = 0.06
RETRY_SECS = 60.0  # until the next attempt to follow a broken capture
LAST_WORDS_SECS = 2.0  # for remote write, when the agent ends

Say = Callable[[str], None]


class NodeAgent:
    """The agent of a node. Raises LogshipperError if another agent runs, or if a folder or the
    port is unusable."""

    def __init__(self, config: AgentConfig, say: Say) -> None:
        fill_standard_fds()  # before our files get a standard number that the caller closed
        agent = config.agent
        self._config = config
        self._say = say = _safe_say(say)
        self._stop = threading.Event()
        self._ending = False  # after a signal
        self._socket = JobSocket(agent, say) if agent.socket else None
        self._captures: dict[str, FollowedCapture] = {}
        self._has_looked = False  # the spool was listed at least once
        self._sinks_noted = False
        self._waiting_count = 0  # captures without free descriptors
        self._most_captures = 1
        self._crowded = ThrottledLog(say)
        self._retries: dict[str, tuple[float, str]] = {}  # next attempt, reason
        # wall clock at monotonic 0
        self._begun_ns = time.time_ns() - time.monotonic_ns()
        self._server: MetricsServer | None = None
        self._threads: list[threading.Thread] = []
        self._report_due = self._forget_due = 0.0
        self._notes: dict[str, object] = {}
        with ExitStack() as undo:
            undo.callback(os.close, lock_state_folder(agent.state_dir))
            self._spool_fd = open_spool_folder(agent.spool_dir)
            undo.callback(os.close, self._spool_fd)
            lock_spool(self._spool_fd, agent.spool_dir)
            self._checkpoints = Checkpoints(os.path.join(agent.state_dir, STATE_FILE))
            undo.callback(self._checkpoints.close)
            self._metrics = AgentMetrics(agent.cluster, agent.host)
            jobs = JobMetrics(config.metrics, agent.cluster, agent.host, log=say)
            self._job_metrics = jobs
            self._learner = Learner(
                self._checkpoints,
                jobs,
                self._metrics,
                agent.poll_secs,
                say,
                names_users=config.metrics.job_values,
            )
            self._sinks: list[SinkCourse] = []
            for sink_config in config.sinks:
                sink = SinkCourse(
                    sink_config, self._checkpoints, self._metrics, self._stop, say, jobs
                )
                undo.callback(sink.close)
                self._sinks.append(sink)
            self._new_sinks = self._find_new_sinks()
            slurm = [sink.slurm for sink in self._sinks if sink.slurm is not None]
            self._slurm = slurm[0] if slurm else None
            for receiver in slurm[1:]:
                slurm[0].give(receiver)
            self._remote_write: RemoteWrite | None = None
            if config.remote_write.access.url:
                self._remote_write = RemoteWrite(
                    config.remote_write,
                    own_labels(agent.cluster, agent.host),
                    self._export,
                    RemoteWriteMetrics(self._metrics.registry),
                    say,
                )
            self._limits = SpoolLimits(agent, say)
            self._overuse = SpoolOveruse(agent, say)
            self._telegraf = TelegrafRouter(config, say) if config.telegraf.enabled else None
            self._measures = NodeMeasures(
                agent, self._metrics, self._limits, self._overuse, self._socket, self._telegraf
            )
            self._service = ServiceNotifier(os.environ)
            undo.callback(self._service.close)
            self._open_parts = undo.pop_all()

    def _export(self) -> str:
        return exposition(self._metrics, self._job_metrics)[0].decode()

    def _find_new_sinks(self) -> list[Checkpoints]:
        """Return the checkpoints of sinks added since the agent's last run. They may begin in the
        middle of captures."""
        labels = self._checkpoints.note(SINKS_NOTE) or [FIRST_SINK]
        new_sinks = [sink for sink in self._sinks if sink.config.label not in labels]
        for sink in new_sinks:
            words = "is new: the agent sends it the present spool and all later lines"
            self._say(Notice(f"[{sink.config.table}] {words}"))
        for name in removed_sinks(self._config):
            label = name or FIRST_SINK
            self._say(
                f"the sink {label} is no longer in the configuration: nothing waits for it. "
                f"Its checkpoints and quarantine stay until `logshipper-agent forget {label}`"
            )
        return [sink.checkpoints for sink in new_sinks]

    # ---- the main loop

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. The next agent continues from the checkpoints."""
        raise_file_limit()
        self._most_captures = most_captures(len(self._sinks))
        keep_freed_memory()
        collect_seldom()
        for signo in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signo, self._on_signal)
        # Closing the terminal must not end the agent.
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
        self._threads = [thread for sink in self._sinks for thread in sink.threads(self._to_ship)]
        remote_write = self._start_remote_write()
        try:
            if self._telegraf is not None:
                self._telegraf.start()
            set_mark(self._config.agent.spool_dir, enabled=self._telegraf is not None)
            if self._socket is not None:
                self._socket.start()
            for thread in self._threads:
                thread.start()
            self._say(Notice(self._ready_words(server.port), Kind.READY))
            self._service.ready()
            self._serve()
        finally:
            self._service.stopping()
            self._begin_stop()
            if self._socket is not None:
                self._socket.close()
            if self._telegraf is not None:
                self._telegraf.close()
            for thread in self._threads:
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
                # Python's shutdown restores the default action: a second signal would kill us.
                signal.signal(signo, signal.SIG_IGN)

    def _start_remote_write(self) -> threading.Thread | None:
        """Start a daemon thread: at the end, its push may still wait for an answer."""
        if self._remote_write is None:
            return None
        thread = threading.Thread(
            target=self._remote_write.run, args=(self._stop,), name="remote write", daemon=True
        )
        thread.start()
        return thread

    def _on_signal(self, signo: int, frame: FrameType | None) -> None:
        """Set the event in another thread: the interrupted code may hold the event's lock."""
        if not self._ending:
            self._ending = True
            _thread.start_new_thread(self._begin_stop, ())

    def _begin_stop(self) -> None:
        self._stop.set()
        self._wake_sinks()

    def _wake_sinks(self) -> None:
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
            except Exception as error:  # hostile input of one user must not end the agent for all
                is_expected = isinstance(error, (LogshipperError, OSError))  # maybe a full disk
                words = str(error) if is_expected else f"a fault of logshipper: {error!r}"
                trouble.log(f"{words}; the agent retries")
                self._stop.wait(TELL_SECS)
            # Without this call, systemd's watchdog restarts the agent.
            if all(thread.is_alive() for thread in self._threads):
                self._service.alive()
            poll_secs = self._config.agent.poll_secs
            rest_secs = look_pause(time.monotonic(), poll_secs)
            self._stop.wait(0.0 if self._learner.is_behind else rest_secs)

    def _turn(self) -> None:
        self._look()
        captures = list(self._captures.values())
        if self._learner.turn(captures):
            self._wake_sinks()
        if self._telegraf is not None:
            self._telegraf.update(captures)
        for capture in captures:
            if capture.is_over and not self._remove(capture):
                break  # the next turn continues
        if self._slurm is not None:
            self._slurm.take()
        self._report(list(self._captures.values()))
        self._note_sinks()  # last: a full disk must not stop limits and /metrics
        self._learner.save(captures)

    def _end(self) -> None:
        captures = list(self._captures.values())
        try:
            self._learner.save(captures, at_once=True)
        finally:
            for capture in captures:
                capture.close()
            self._open_parts.close()

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
        """Store the sinks' names for the agent's next start. Wait until no capture waits, because
        a new sink is new to those as well."""
        if not self._sinks_noted and not self._waiting_count:
            self._checkpoints.put_notes({SINKS_NOTE: [sink.config.label for sink in self._sinks]})
            self._sinks_noted = True

    def _follow_all(self, names: list[str]) -> int:
        """Follow as many captures as descriptors allow, after a start those with checkpoints
        first. Return the number of waiting captures."""
        if not self._has_looked:
            begun = {folder for sink in self._sinks for folder in sink.checkpoints.folders()}
            names = sorted(names, key=lambda name: name not in begun)
        leaving_count = max(sink.leaving_count for sink in self._sinks)
        waiting_count = 0
        for name in names:
            if len(self._captures) + leaving_count < self._most_captures:
                self._follow(name)
            else:
                waiting_count += 1
        if waiting_count:
            words = f"file descriptors suffice for {self._most_captures} captures at a time"
            remedy = "raise LimitNOFILE (`ulimit -n`)"
            self._crowded.log(f"{words}; further ones wait in the spool: {remedy}")
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
                raise StoreError(folder.path, "has no complete identity.json")
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
        """Remove an unused directory if it is old, or if an agent died while it removed it. Else
        its job may still print."""
        if self._overuse.removes_unused(folder):
            folder.close()
            return
        # A changed wall clock must not make it old: its sidecar may be about to begin.
        now_ns = min(time.time_ns(), self._begun_ns + time.monotonic_ns())
        old = now_ns - folder.begun_ns() > UNUSED_SECS * 1e9
        is_shipped = any(
            checkpoint.done
            for sink in self._sinks
            for checkpoint in sink.checkpoints.shipped(folder.key)
        )
        if is_shipped or (old and folder.life() is Life.DEAD):
            folder.remove()
        folder.close()

    def _remove(self, capture: FollowedCapture) -> bool:
        """Remove a finished capture. Return False if more remains than one turn should remove."""
        try:
            if not capture.folder.remove():
                return False
            fault_point("capture_removed")
            self._learner.forget(capture)
        except OSError as error:  # stays in the spool until the next attempt
            words = os_words(error)
            self._refuse(capture.folder.name, f"is shipped, but the agent can't remove it: {words}")
        self._drop(capture.folder.name)
        return True

    def _drop(self, name: str) -> None:
        capture = self._captures.pop(name)
        for sink in self._sinks:
            sink.drop(capture)

    def _to_ship(self) -> list[FollowedCapture]:
        """Return the captures to ship; shippers call it between two rounds."""
        # Before the first listing, captures with checkpoints may be missing.
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
        self._measures.update(captures)
        for sink in self._sinks:
            sink.measure(captures)
        agent = {"pid": os.getpid(), "version": __version__, **vars(self._config.agent)}
        notes: dict[str, object] = {"agent": agent}
        if self._overuse.latest:
            notes["taken"] = self._overuse.latest
        if self._server is not None and self._config.metrics.listen:
            listen = self._config.metrics.listen
            notes["metrics"] = {"listen": listen, "trouble": self._server.trouble}
        if self._remote_write is not None:
            url = self._config.remote_write.access.url
            notes["remote_write"] = {"url": url, **self._remote_write.state._asdict()}
        if self._telegraf is not None:
            lines, trouble = dict(self._telegraf.counts), self._telegraf.trouble
            listen = self._config.telegraf.listen
            notes["telegraf"] = {"listen": listen, "lines": lines, "trouble": trouble}
        troubles = filter(None, (sink.trouble_text() for sink in self._sinks))
        words = "; ".join(troubles) or "Loki accepts everything"
        self._service.status(f"{plural(len(captures), 'capture')}; {words}")
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


def look_pause(now: float, poll_secs: float) -> float:
    """Return the time to the next look at the spool: soon after sidecars write gathered lines."""
    return poll_secs - (now - AFTER_FRAMES_SECS) % poll_secs


def _safe_say(say: Say) -> Say:
    """Return `say` without its errors: a closed log must not end the agent or its threads."""

    def say_safely(words: str) -> None:
        with suppress(OSError, ValueError, AttributeError):
            say(words)

    return say_safely
