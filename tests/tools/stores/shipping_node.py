"""The node agent's shipper and learner in this process, step by step, with a model of Loki in
memory."""

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from logshipper_ingest.agent.learner import Learner
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config.agent_config import AgentConfig, parse
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.job_series import CaptureView
from logshipper_ingest.model.job import EVENT_KINDS
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_ingest.shipping import round_delivery
from logshipper_ingest.shipping.delivery import Delivery
from logshipper_ingest.shipping.followed_capture import FollowedCapture, ShippedCapture
from logshipper_ingest.shipping.loki_sink import LokiSink
from logshipper_ingest.shipping.quarantine import Quarantine
from logshipper_ingest.shipping.shipper import Shipper
from logshipper_ingest.shipping.sink import PushClient
from logshipper_ingest.spool.capture_folder import CaptureFolder
from logshipper_ingest.state.checkpoints import Checkpoints
from tests.tools.captures.segment_factory import SECOND_NS, CaptureWriter
from tests.tools.fakes.modelled_loki import ModelledLoki

CLUSTER, HOST = "testing", "n1"
MAX_ROUNDS = 500


def soon_ns(minutes: float = 10) -> int:
    """Return the time some minutes ago."""
    return time.time_ns() - int(minutes * 60) * SECOND_NS


class InlineExecutor:
    """Runs each task in the calling thread when it is submitted."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, task: Callable[..., Any], *args: object) -> "Future[Any]":  # Any: any task's
        future: Future[Any] = Future()
        future.set_result(task(*args))
        return future

    def shutdown(self) -> None:
        pass


def one_stream_at_a_time(patch: pytest.MonkeyPatch) -> None:
    """Make shippers deliver streams one after another, in the same order in each run."""
    patch.setattr(round_delivery, "ThreadPoolExecutor", InlineExecutor)


class NodeCapture(CaptureWriter):
    """A capture in a node's spool, in a directory that the agent made."""

    def __init__(self, node: "ShippingNode", job_id: str, start_ns: int, **identity: Any) -> None:
        # Any: fields of NodeIdentity
        fields: dict[str, Any] = {
            "attempt": 1,
            "step": "",
            "task": 0,
            "name": "train.py",
            "user": "me",
        }
        fields |= {"uid": os.geteuid(), "gid": os.getegid(), **identity}
        self.job_id = job_id
        self.path = Path(prepare_capture(node.config.agent, NodeIdentity(job_id=job_id, **fields)))
        self.segments = self.path / "segments"
        self.now_ns = start_ns
        self.number = 0
        self._lock = -1
        # the directory has the age of the capture
        os.utime(self.path / "identity.json", ns=(start_ns, start_ns))
        self.open_segment()


class SeenMetrics(JobMetrics):
    """Metrics that keep all their input."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__(config.metrics, CLUSTER, HOST)
        self.views: list[CaptureView] = []

    def update(self, view: CaptureView) -> None:
        super().update(view)
        self.views.append(view)


class ShippingNode:
    """One agent's parts in a folder; close it. loki: the model; access: to a real Loki instead;
    options: over those of [loki]."""

    def __init__(
        self,
        folder: Path,
        loki: ModelledLoki | None = None,
        *,
        access: ServerAccess | None = None,
        **options: Any,  # Any: TOML values
    ) -> None:
        self.folder = folder
        section = {"url": "http://modelled", "retry_min_secs": 0.001, "retry_max_secs": 0.002, "settle_secs": 0,
                   "stream_max_bytes_per_sec": 0, "tenant_max_bytes_per_sec": 0, **options}  # fmt: skip
        agent = {"cluster": CLUSTER, "host": HOST, "spool_dir": str(folder / "spool"),
                 "state_dir": str(folder / "state")}  # fmt: skip
        self.config, problems = parse({"agent": agent, "loki": section})
        assert problems == []
        self.loki = loki or ModelledLoki()
        self._access = access
        self._clients: list[LokiClient] = []  # of a real Loki
        self.messages: list[str] = []
        self.metrics = SeenMetrics(self.config)
        for place in ("spool", "state"):
            (folder / place).mkdir(exist_ok=True)
        (folder / "spool").chmod(0o711)
        self.stop = threading.Event()
        self._spool_fd = os.open(folder / "spool", os.O_RDONLY | os.O_DIRECTORY)
        self.captures: dict[str, FollowedCapture] = {}
        self.begin()

    def begin(self) -> None:
        """Open the parts that an agent opens at its start."""
        self.health = AgentMetrics(CLUSTER, HOST)
        self.checkpoints = Checkpoints(str(self.folder / "state" / "state.db"))
        self.quarantine = Quarantine(
            str(self.folder / "state" / "quarantine"), self.config.loki.quarantine_max_bytes
        )
        self.delivery = Delivery(
            LokiSink(CLUSTER, HOST),
            self._make_client,
            self.config.loki,
            self.health,
            self.stop,
            self.messages.append,
        )
        (sink_config,) = self.config.sinks
        self.shipper = Shipper(
            sink_config,
            self.checkpoints,
            self.delivery,
            self.quarantine,
            self.health,
            self.messages.append,
        )
        self.learner = Learner(
            self.checkpoints, self.metrics, self.health, 0.0, self.messages.append
        )

    def _make_client(self) -> PushClient:
        """Return a client for one thread, because threads do not share connections."""
        if self._access is None:
            return self.loki
        self._clients.append(LokiClient(self._access))
        return self._clients[-1]

    def end(self, *, save: bool = True) -> None:
        """Close all parts. save: as after a signal; False: as after SIGKILL."""
        if save:
            self.learner.save(self.captures.values(), at_once=True)
        else:  # commits that await the next transaction
            self.checkpoints._waiting_rows.clear()
            self.checkpoints._waiting_ns.clear()
        self.shipper.close()
        for client in self._clients:
            client.close()
        for capture in self.captures.values():
            capture.close()
        self.captures = {}
        self.checkpoints.close()

    def restart(self, *, save: bool = True) -> None:
        self.end(save=save)
        self.begin()

    def lose_state(self) -> None:
        """Restart without state.db, as if it was removed while no agent ran."""
        self.end()
        for file in (self.folder / "state").glob("state.db*"):
            file.unlink()
        self.begin()

    def close(self) -> None:
        self.stop.set()
        self.end()
        os.close(self._spool_fd)

    # ---- steps

    def capture(
        self, job_id: str, start_ns: int, **identity: Any
    ) -> NodeCapture:  # Any: see NodeCapture
        return NodeCapture(self, job_id, start_ns, **identity)

    def follow(self) -> list[FollowedCapture]:
        """Follow all captures in the spool, and return them."""
        for name in sorted(os.listdir(self.folder / "spool")):
            if not name.startswith(".") and name not in self.captures:
                folder = CaptureFolder(
                    self._spool_fd, str(self.folder / "spool"), name, os.geteuid(), node=True
                )
                identity = folder.identity(complete=True)
                assert identity is not None
                self.captures[name] = FollowedCapture(folder, self.checkpoints, identity)
        return list(self.captures.values())

    def to_ship(self) -> list[ShippedCapture]:
        """Return the same captures in the form for the only sink."""
        return [capture.sinks[0] for capture in self.follow()]

    def learn(self, *, save: bool = True) -> None:
        """Learn until there is nothing new."""
        captures = self.follow()
        turns = 0
        while self.learner.turn(captures):
            turns += 1
            assert turns < MAX_ROUNDS, "the learner finds something new for ever"
        if save:
            self.learner.save(captures, at_once=True)

    def round(self) -> bool:
        return self.shipper.round(self.to_ship())

    def ship(self) -> None:
        """Learn and ship everything in the spool."""
        self.learn()
        rounds = 0
        while self.round() or any(capture.sinks[0].waits for capture in self.captures.values()):
            rounds += 1
            assert rounds < MAX_ROUNDS, "the shipper has something to do for ever"

    def only_capture(self) -> FollowedCapture:
        (capture,) = self.follow()
        return capture

    # ---- results

    def quarantined(self) -> list[dict[str, Any]]:  # Any: JSON
        files = sorted((self.folder / "state" / "quarantine").iterdir())
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def events(self, job_id: str = "") -> list[dict[str, Any]]:  # Any: JSON
        """Return the events in Loki, of one job or of all."""
        entries = [entry for kind in EVENT_KINDS for entry in self.loki.find(f'kind="{kind}"')]
        return [
            json.loads(entry.line)
            for entry in sorted(entries, key=lambda entry: entry.time_ns)
            if not job_id or ("job_id", job_id) in entry.metadata
        ]
