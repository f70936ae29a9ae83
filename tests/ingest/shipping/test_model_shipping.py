"""Spool to Loki against a simple model, with faults at any moment. Each spooled line is visible
once, in Loki or in the quarantine, and the accounts balance.

The shipper, the learner, the sink, the checkpoints and the quarantine are real; Loki is a model in
memory. A kill acts like SIGKILL: none of the agent's code runs afterwards, and the next agent gets
the disk's content.
"""

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logshipper.errors import PushError, RejectedPushError, StoreError
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.shipping import delivery
from logshipper_ingest.shipping import quarantine as quarantine_module
from tests.tools.captures.segment_factory import make_ledger, memory_folder
from tests.tools.fakes.modelled_loki import NAME, ModelledLoki, rejection, throttled, unreachable
from tests.tools.fakes.push_decoder import Pushed
from tests.tools.stores.shipping_node import NodeCapture, ShippingNode, one_stream_at_a_time
from tests.tools.stress.model_settings import model_settings

MINUTE_NS = 60 * 10**9
BAD = "no Loki takes this"
MAX_CAPTURES = 4
BEFORE: dict[str, Callable[[], PushError]] = {
    "429": throttled,
    "401": lambda: rejection(401),
    "404": lambda: rejection(404),
    "500": lambda: rejection(500, "at least 1 live replicas required"),
    "limit": lambda: throttled(
        words="maximum active stream limit exceeded when trying to create stream {...}"
    ),
    "away": unreachable,
}


class Killed(BaseException):
    """Acts like SIGKILL."""


class FaultyLoki(ModelledLoki):
    """A modelled Loki with faults of the next pushes. `lost`: stored, but the answer is lost;
    `killed`, `killed late`: the agent dies before or after Loki stored it. It refuses lines with
    BAD, and stores the others of a push."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.is_dead = False

    def push_body(self, body: bytes, tenant: str = "") -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if self.is_dead or fault == "killed":
            self.is_dead = True
            raise Killed
        if fault in BEFORE:
            raise BEFORE[fault]()
        super().push_body(body, tenant)
        if fault == "lost":
            raise unreachable()
        if fault == "killed late":
            self.is_dead = True
            raise Killed

    def _take(self, labels: str, entries: list[Pushed]) -> None:
        good = [entry for entry in entries if BAD.encode() not in entry.line]
        super()._take(labels, good)
        if len(good) < len(entries):
            raise RejectedPushError(
                NAME, 400, f"max entry size '1' bytes exceeded for stream '{labels}'"
            )


class Job:
    """A capture and its lines: (stream, kind, text)."""

    def __init__(self, capture: NodeCapture) -> None:
        self.capture = capture
        self.lines: list[tuple[str, str, str]] = []
        self.bad: list[str] = []
        self.is_over = False


class Shipping(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        # so that the order of faults doesn't depend on threads
        one_stream_at_a_time(self.patch)
        self.patch.setattr(delivery, "STREAM_LIMIT_SECS", (0.001, 0.002))
        self.folder = Path(tempfile.mkdtemp(prefix="logshipper-test-", dir=memory_folder()))
        self.loki = FaultyLoki()
        self.node = ShippingNode(self.folder, self.loki)
        self.jobs: list[Job] = []
        self.serial = 0
        self.at_disk: dict[str, list[str]] = {"commit": [], "put_notes": [], "quarantine": []}
        self.patch.setattr(
            quarantine_module, "_write_all", self._faulty_write(quarantine_module._write_all)
        )
        self._arm()

    def _arm(self) -> None:
        """Make the new agent's checkpoints fail according to `at_disk`."""
        for name in ("commit", "put_notes"):
            setattr(
                self.node.checkpoints,
                name,
                self._failing(name, getattr(self.node.checkpoints, name)),
            )

    def _failing(self, name: str, act: Callable[..., None]) -> Callable[..., None]:
        def acting(*arguments: Any, **options: Any) -> None:  # Any: the method's own
            fault = self.at_disk[name].pop(0) if self.at_disk[name] else ""
            if fault == "full":
                raise StoreError("state.db", "no room left on the disk")
            if fault == "killed":
                raise Killed
            act(*arguments, **options)
            if fault == "killed late":
                raise Killed

        return acting

    def _faulty_write(
        self, write_all: Callable[[int, bytes], None]
    ) -> Callable[[int, bytes], None]:
        def writing(fd: int, data: bytes) -> None:
            fault = self.at_disk["quarantine"].pop(0) if self.at_disk["quarantine"] else ""
            if fault == "full":
                write_all(fd, data[: len(data) // 2])
                raise OSError(28, "No space left on device")
            if fault == "killed":
                write_all(fd, data[: 2 * len(data) // 3])
                raise Killed
            write_all(fd, data)
            if fault == "killed late":
                raise Killed

        return writing

    # ---- jobs

    @precondition(lambda self: len(self.jobs) < MAX_CAPTURES)
    @rule(minutes=st.sampled_from([1, 30, 50, 70, 200]))
    def begin(self, minutes: int) -> None:
        capture = self.node.capture(f"job{len(self.jobs)}", time.time_ns() - minutes * MINUTE_NS)
        capture.__enter__()
        capture.start()
        self.jobs.append(Job(capture))

    @precondition(lambda self: any(not job.is_over for job in self.jobs))
    @rule(
        data=st.data(),
        gap=st.sampled_from([0, 0, 1, 20, 50, 70]),
        stream=st.sampled_from([Stream.STDOUT, Stream.STDOUT, Stream.STDERR]),
        kind=st.sampled_from([Kind.LOG, Kind.LOG, Kind.METADATA]),
        bad=st.lists(st.sampled_from([False, False, False, True]), min_size=1, max_size=4),
    )
    def write(
        self, data: st.DataObject, gap: int, stream: Stream, kind: Kind, bad: Sequence[bool]
    ) -> None:
        job = self._pick(data)
        capture = job.capture
        capture.now_ns = max(
            capture.now_ns, min(capture.now_ns + gap * MINUTE_NS, time.time_ns() - MINUTE_NS)
        )
        texts = []
        for is_bad in bad:
            self.serial += 1
            text = f"{BAD if is_bad else 'line'} {self.serial}"
            texts.append(text if kind is Kind.LOG else json.dumps({"said": text}))
            if is_bad:
                job.bad.append(texts[-1])
            else:
                job.lines.append((stream.name.lower(), kind.name.lower(), texts[-1]))
        capture.lines(texts, stream=stream, kind=kind)

    @precondition(lambda self: any(not job.is_over for job in self.jobs))
    @rule(data=st.data())
    def rotate(self, data: st.DataObject) -> None:
        self._pick(data).capture.rotate()

    @precondition(lambda self: any(not job.is_over for job in self.jobs))
    @rule(data=st.data(), dies=st.booleans())
    def end(self, data: st.DataObject, dies: bool) -> None:
        self._finish(self._pick(data), dies=dies)

    def _pick(self, data: st.DataObject) -> Job:
        return data.draw(st.sampled_from([job for job in self.jobs if not job.is_over]))

    def _finish(self, job: Job, *, dies: bool) -> None:
        job.is_over = True
        if not dies:
            stored = len(job.lines) + len(job.bad)
            job.capture.end(ledger=make_ledger({"stored": stored}))
            job.capture.close()
        job.capture.die()

    # ---- the agent

    @rule(
        faults=st.lists(
            st.sampled_from([*BEFORE, "", "lost", "lost", "killed", "killed late"]),
            min_size=1,
            max_size=3,
        )
    )
    def loki_fails(self, faults: list[str]) -> None:
        self.loki.faults = list(faults)

    @rule(
        where=st.sampled_from(["commit", "put_notes", "quarantine"]),
        faults=st.lists(st.sampled_from(["full", "killed", "killed late"]), min_size=1, max_size=2),
    )
    def disk_fails(self, where: str, faults: list[str]) -> None:
        self.at_disk[where] = list(faults)

    @rule(save=st.booleans())
    def learn(self, save: bool) -> None:
        self.node.learn(save=save)

    @precondition(lambda self: self.jobs)
    @rule()
    def ship(self) -> None:
        try:
            self.node.round()
        except StoreError:
            pass  # the shipper's thread logs it and retries
        except Killed:
            self.restart(save=False)

    @rule(save=st.booleans())
    def restart(self, save: bool) -> None:
        self.node.restart(save=save)
        self.loki.is_dead = False
        self._arm()

    # ---- invariants

    @invariant()
    def nothing_is_seen_twice(self) -> None:
        assert self.loki.doubles() == []

    def teardown(self) -> None:
        try:
            self._settle()
        finally:
            self.node.close()
            self.patch.undo()
            shutil.rmtree(self.folder)

    def _settle(self) -> None:
        for job in self.jobs:
            if not job.is_over:
                self._finish(job, dies=False)
        self.loki.faults = []
        self.at_disk = {name: [] for name in self.at_disk}
        self.node.ship()
        self._compare()
        pushes = len(self.loki.requests)
        self.restart(save=False)
        self.node.ship()
        assert len(self.loki.requests) == pushes, "all of it is remembered"

    def _compare(self) -> None:
        self.nothing_is_seen_twice()
        quarantined = Counter(entry["line"] for entry in self.node.quarantined())
        assert quarantined == Counter(text for job in self.jobs for text in job.bad)
        counts = {
            checkpoint.identity.job_id: checkpoint for checkpoint in self.node.checkpoints.shipped()
        }
        for job in self.jobs:
            self._compare_lines(job)
            events = self.node.events(job.capture.job_id)
            assert Counter(event["event"] for event in events)["closed"] == 1
            checkpoint = counts[job.capture.job_id]
            assert checkpoint.done
            entry_counts = {
                kind: count
                for kind, count in checkpoint.counts.entries.items()
                if kind in ("log", "metadata")
            }
            assert sum(entry_counts.values()) == len(job.lines)
            assert sum(checkpoint.counts.refused.values()) == len(job.bad)

    def _compare_lines(self, job: Job) -> None:
        job_label = ("job_id", job.capture.job_id)
        for stream in ("stdout", "stderr"):
            for kind in ("log", "metadata"):
                entries = self.loki.find(f'kind="{kind}"', f'stream="{stream}"')
                texts = [entry.line.decode() for entry in entries if job_label in entry.metadata]
                assert texts == [text for *of, text in job.lines if of == [stream, kind]]


def test_each_line_is_in_loki_or_in_the_quarantine_once_whatever_fails() -> None:
    run_state_machine_as_test(Shipping, settings=model_settings(60, 30))
