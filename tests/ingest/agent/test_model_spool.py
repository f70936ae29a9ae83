"""The life of captures' directories in a node's spool against a simple model. They are made, maybe
used, ended, killed, shipped and removed. The agent is restarted or killed at any moment, even
during a removal.

Only Loki is modelled; the agent is real and works turn by turn. It loses and repeats no line, and
never removes a capture that lives or may still begin. Finally the spool is empty.
"""

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logshipper.spool.captures import process_started
from logshipper_ingest.agent import sink_parts
from logshipper_ingest.agent.node_agent import UNUSED_SECS, NodeAgent
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config.agent_config import parse
from logshipper_ingest.spool.folder_removal import FolderRemoval
from tests.tools.captures.segment_factory import CaptureWriter, age, make_ledger, memory_folder
from tests.tools.fakes.modelled_loki import ModelledLoki
from tests.tools.stores.shipping_node import one_stream_at_a_time
from tests.tools.stress.model_settings import model_settings

MAX_CAPTURES = 4
Unlinked = Callable[[FolderRemoval, str, int], bool]


class Killed(BaseException):
    """Acts like SIGKILL."""


class Task:
    """A directory of a task. writer: None until its capture begins; has_sidecar, has_relay: whether
    they live."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer: CaptureWriter | None = None
        self.has_sidecar = self.has_relay = False
        self.is_old = False
        self.lines: list[str] = []

    @property
    def may_go(self) -> bool:
        if self.writer is None:
            return self.is_old
        return not self.has_sidecar and not self.has_relay

    def count(self) -> None:
        """Write the relay's counters and whether it lives."""
        assert self.writer is not None
        pid = os.getpid() if self.has_relay else 0
        self.writer.counters(
            (0, len(self.lines)), pid=pid, started=process_started(pid) if pid else 0
        )


class Spool(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.loki = ModelledLoki()
        self.patch.setattr(sink_parts, "LokiClient", lambda access: self.loki)
        one_stream_at_a_time(self.patch)
        self.patch.setattr(FolderRemoval, "_unlinked", self._unlinked(FolderRemoval._unlinked))
        self.unlinks_left = -1  # negative: no kill is planned
        self.folder = Path(tempfile.mkdtemp(prefix="logshipper-test-", dir=memory_folder()))
        agent = {"cluster": "testing", "host": "n1", "socket": "", "spool_dir": str(self.folder / "spool"),
                 "state_dir": str(self.folder / "state")}  # fmt: skip
        self.config, problems = parse({"agent": agent, "loki": {"url": "http://modelled"}})
        assert problems == []
        self.messages: list[str] = []
        self.tasks: list[Task] = []
        self.serial = 0
        self.agent = NodeAgent(self.config, self.messages.append)

    def _unlinked(self, unlinked: Unlinked) -> Unlinked:
        def killing(removal: FolderRemoval, name: str, fd: int) -> bool:
            if self.unlinks_left == 0:
                raise Killed
            self.unlinks_left -= 1
            return unlinked(removal, name, fd)

        return killing

    # ---- tasks

    @precondition(lambda self: len(self.tasks) < MAX_CAPTURES)
    @rule()
    def prepare(self) -> None:
        name = f"job{len(self.tasks)}"
        identity = NodeIdentity(name, 1, "", 0, "train.py", os.geteuid(), "me", gid=os.getegid())
        self.tasks.append(Task(Path(prepare_capture(self.config.agent, identity))))

    def _some(self, data: st.DataObject, tasks: list[Task]) -> Task | None:
        return data.draw(st.sampled_from(tasks)) if tasks else None

    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        task = self._some(
            data, [task for task in self.tasks if task.writer is None and not task.is_old]
        )
        if task is not None:
            task.writer = CaptureWriter.in_node_spool(
                task.path, start_ns=time.time_ns() - 60 * 10**9
            )
            task.writer.__enter__()
            task.has_sidecar = task.has_relay = True
            task.count()
            task.writer.start()

    @rule(data=st.data(), rotates=st.booleans())
    def write(self, data: st.DataObject, rotates: bool) -> None:
        task = self._some(data, [task for task in self.tasks if task.has_sidecar])
        if task is not None:
            assert task.writer is not None
            self.serial += 1
            task.lines.append(f"line {self.serial}")
            task.writer.lines(task.lines[-1:])
            task.count()
            if rotates:
                task.writer.rotate()

    @rule(data=st.data())
    def sidecar_ends(self, data: st.DataObject) -> None:
        """The sidecar ends in order: the relay ends first."""
        task = self._some(data, [task for task in self.tasks if task.has_sidecar])
        if task is not None:
            self._end(task)

    def _end(self, task: Task) -> None:
        assert task.writer is not None
        task.has_relay = task.has_sidecar = False
        task.count()
        task.writer.end(ledger=make_ledger({"stored": len(task.lines)}))
        task.writer.close()
        task.writer.die()

    @rule(data=st.data())
    def sidecar_dies(self, data: st.DataObject) -> None:
        task = self._some(data, [task for task in self.tasks if task.has_sidecar])
        if task is not None:
            assert task.writer is not None
            task.has_sidecar = False
            task.writer.die()

    @rule(data=st.data())
    def relay_dies(self, data: st.DataObject) -> None:
        task = self._some(data, [task for task in self.tasks if task.has_relay])
        if task is not None:
            task.has_relay = False
            task.count()

    @rule(data=st.data())
    def nobody_began(self, data: st.DataObject) -> None:
        """The directory stays unused until the agent may remove it."""
        task = self._some(data, [task for task in self.tasks if task.writer is None])
        if task is not None and task.path.exists():
            task.is_old = True
            age(task.path, UNUSED_SECS + 60)

    # ---- the agent

    @rule(saves=st.booleans())
    def turn(self, saves: bool) -> None:
        self._turn(saves=saves)

    def _turn(self, *, saves: bool) -> None:
        agent = self.agent
        agent._retries.clear()  # retry now
        for capture in agent._captures.values():
            capture.next_look = 0.0
        agent._learner._save_due = 0.0 if saves else time.monotonic() + 60
        try:
            agent._turn()
        except Killed:
            self.unlinks_left = -1
            self._restart(saves=False)

    @rule()
    def ship(self) -> None:
        (sink,) = self.agent._sinks
        sink._shipper.round(sink._to_ship(self.agent._to_ship))

    @rule(saves=st.booleans())
    def restart(self, saves: bool) -> None:
        self._restart(saves=saves)

    def _restart(self, *, saves: bool) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if not saves:
                patch.setattr(self.agent._learner, "save", lambda *_, **__: None)
            self.agent._end()
        self.agent = NodeAgent(self.config, self.messages.append)

    @rule(unlinks=st.integers(0, 5))
    def killed_while_it_removes(self, unlinks: int) -> None:
        self.unlinks_left = unlinks

    # ---- invariants

    @invariant()
    def what_lives_is_there(self) -> None:
        for task in self.tasks:
            if not task.may_go:
                assert (task.path / "segments").is_dir()
                assert task.writer is None or task.writer.segment.exists()
        assert self.loki.doubles() == []

    def teardown(self) -> None:
        try:
            self._settle()
        finally:
            self.unlinks_left = -1
            self.agent._end()
            self.patch.undo()
            shutil.rmtree(self.folder)

    def _settle(self) -> None:
        self.unlinks_left = -1
        for task in self.tasks:
            if task.has_sidecar:
                self._end(task)
            elif task.has_relay:
                task.has_relay = False
                task.count()
        for tries_left in range(20):
            self._turn(saves=True)
            self.ship()
            for path in self._spooled() if tries_left > 10 else []:
                if not (path / "segments").exists() or not list((path / "segments").iterdir()):
                    age(path, UNUSED_SECS + 60)  # unused, or half removed
        assert self._spooled() == []
        for number, task in enumerate(self.tasks):
            job_label = ("job_id", f"job{number}")
            entries = [
                entry for entry in self.loki.find('kind="log"') if job_label in entry.metadata
            ]
            assert [entry.line.decode() for entry in entries] == task.lines
            events = [
                entry.line
                for entry in self.loki.find('kind="event"')
                if job_label in entry.metadata
            ]
            assert Counter(json.loads(line)["event"] for line in events)["closed"] == (
                task.writer is not None
            )
        assert not [words for words in self.messages if "fault" in words or "can't" in words]

    def _spooled(self) -> list[Path]:
        return [path for path in (self.folder / "spool").iterdir() if not path.name.startswith(".")]


def test_a_directory_in_the_spool_lives_as_long_as_it_must_and_no_longer() -> None:
    run_state_machine_as_test(Spool, settings=model_settings(60, 30))
