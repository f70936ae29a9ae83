"""Loki as in clusters: three processes in one ring, which find each other by memberlist, and nginx
before them.

Each line has three replicas. Members have tenants, and a shared folder of objects. nginx knows all
members, like the gateway of Loki's Helm chart.
"""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import requests
import yaml

from tests.servers.loki import require_read_and_write
from tests.servers.nginx import NginxServer
from tests.servers.running import (
    ANSWER_TIMEOUT_SECS,
    READY_TIMEOUT_SECS,
    STOP_TIMEOUT_SECS,
    LokiServer,
    free_port,
    held_port,
    merged,
)
from tests.tools.waiting import wait_until

MEMBERS = 3
TENANT = "cluster"
# a hanging member counts as active for this time
HEARTBEAT_TIMEOUT_SECS = 15
_GATEWAY = """\
client_max_body_size 16m;
upstream takers {{
{takers}
}}
upstream readers {{
{readers}
}}
upstream compactor {{
{compactor}
}}
server {{
    listen 127.0.0.1:{port};
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_connect_timeout 1s;
    proxy_read_timeout {read_secs}s;
    location / {{ proxy_pass http://readers; }}
    location /loki/api/v1/push {{ proxy_pass http://takers; }}
    location /loki/api/v1/delete {{ proxy_pass http://compactor; }}
}}
"""


class RingMember(LokiServer):
    """A process of the ring. wal: the folder of its write-ahead log."""

    def __init__(self, folder: Path, wal: Path, parts: Mapping[str, Any]) -> None:
        self.wal = wal
        super().__init__(auth_enabled=True, deletes=True, parts=parts, folder=folder)

    def hang(self) -> None:
        """Stop the process until `go_on`: its sockets stay open, without answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def leave(self) -> None:
        """Leave for good, as when a site shrinks a ring: the member flushes its data, and ends."""
        parameters = {"flush": "true", "delete_ring_tokens": "true", "terminate": "true"}
        self.post("/ingester/shutdown", **parameters)
        wait_until(lambda: not self.is_running, f"{self.url} has left the ring", STOP_TIMEOUT_SECS)
        self.stop()

    def metric(self, name: str) -> float:
        """Return the sum of a metric's series."""
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self._get("/metrics").text, re.M)
        return sum(map(float, values))

    def states(self) -> dict[str, str]:
        """Return its view of the ring of ingesters, by their names; empty if it doesn't answer."""
        headers = {"Accept": "application/json"}
        with requests.Session() as session:
            session.trust_env = False  # no proxy for loopback
            try:
                answer = session.get(
                    f"{self.url}/ring", headers=headers, timeout=ANSWER_TIMEOUT_SECS
                )
                return {shard["id"]: shard["state"] for shard in answer.json()["shards"]}
            except (requests.RequestException, ValueError, KeyError):
                return {}


class Gateway(NginxServer):
    """Tries one member after the other; skips for some seconds one that refused or timed out.

    Takers get pushes, readers all else. The first reader gets requests about deletion.
    """

    def __init__(
        self,
        folder: Path,
        takers: Sequence[LokiServer],
        readers: Sequence[LokiServer],
        *,
        read_secs: int,
    ) -> None:
        super().__init__(folder, "site.conf")
        text = _GATEWAY.format(
            takers=_servers(takers),
            readers=_servers(readers),
            compactor=_servers(readers[:1]),
            port=self.port,
            read_secs=read_secs,
        )
        (folder / "site.conf").write_text(text)


class LokiRing:
    """Three members and their gateway, which `with` starts and closes.

    - overrides: limits of tenants
    - wals: folders of members' write-ahead logs, by number
    - parts: over each member's configuration
    - read_secs: time limit of the gateway for a member
    - apart: members only take lines. One more process, `reader`, answers queries and has the
      compactor. Otherwise each member has its own compactor.
    """

    def __init__(
        self,
        *,
        overrides: Mapping[str, Mapping[str, object]] | None = None,
        wals: Mapping[int, Path] | None = None,
        parts: Mapping[str, Any] | None = None,
        read_secs: int = 2,
        apart: bool = False,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="logshipper-loki-ring-"))
        self._wals = dict(wals or {})
        self._parts = dict(parts or {})
        if apart:
            require_read_and_write()
        # held until the start, so that no other process here takes them
        self._held = [held_port() for _ in range(MEMBERS)]
        self._gossip_ports = [int(held.getsockname()[1]) for held in self._held]
        self._member_count = 0
        self._overrides = self.folder / "overrides.yaml"
        self.set_overrides(overrides or {})
        self.members: list[RingMember] = []
        self.reader: RingMember | None = None
        if apart:
            self.reader = self._reader()
            address = {"compactor_grpc_address": f"127.0.0.1:{self.reader.grpc_port}"}
            self._parts = merged({"target": "write", "common": address}, self._parts)
        for _ in range(MEMBERS):
            self.add_member()
        self.gateway = Gateway(
            self.folder / "gateway",
            self.members,
            [self.reader] if self.reader else self.members,
            read_secs=read_secs,
        )

    @property
    def url(self) -> str:
        """The gateway's address, for agents and readers."""
        return self.gateway.url

    def set_overrides(self, limits: Mapping[str, Mapping[str, object]]) -> None:
        """Set limits of tenants, by name; processes apply them within a second or two."""
        scratch = self._overrides.with_suffix(".new")
        scratch.write_text(yaml.safe_dump({"overrides": dict(limits)}))
        scratch.rename(self._overrides)

    def _reader(self) -> RingMember:
        folder = self.folder / "reader"
        config = self._config(folder.name, folder / "wal", free_port())
        alone: dict[str, Any] = {  # without these, it would wait 10 minutes for others
            "target": "read",
            "legacy_read_target": True,  # including the compactor
            "index_gateway": {"ring": {"replication_factor": 1}},
            "compactor": {"compactor_ring": {"kvstore": {"store": "inmemory"}}},
        }
        return RingMember(folder, folder / "wal", merged(config, alone))

    def add_member(self) -> RingMember:
        """Add a member that is unknown to the gateway and not yet started."""
        number = self._member_count
        self._member_count += 1
        folder = self.folder / f"member{number}"
        wal = self._wals.get(number, folder / "wal")
        port = self._gossip_ports[number] if number < MEMBERS else free_port()
        member = RingMember(folder, wal, self._config(folder.name, wal, port))
        self.members.append(member)
        return member

    def remove_member(self, member: RingMember) -> None:
        """Remove an added member."""
        member.leave()
        self.members.remove(member)

    def _config(self, name: str, wal: Path, gossip_port: int) -> dict[str, Any]:
        own = {
            "server": {"log_level": "warn"},
            "common": {
                "replication_factor": MEMBERS,
                "storage": {"filesystem": {
                    "chunks_directory": str(self.folder / "objects"),
                    "rules_directory": str(self.folder / "rules"),
                }},
                "ring": {
                    "instance_id": name,
                    "kvstore": {"store": "memberlist"},
                    "heartbeat_period": "1s",
                    "heartbeat_timeout": f"{HEARTBEAT_TIMEOUT_SECS}s",
                },
            },
            "memberlist": {
                "node_name": name,
                "cluster_label": self.folder.name,
                "bind_addr": ["127.0.0.1"],
                "advertise_addr": "127.0.0.1",
                "bind_port": gossip_port,
                "advertise_port": gossip_port,
                "join_members": [f"127.0.0.1:{port}" for port in self._gossip_ports],
                "leave_timeout": "1s",
                "rejoin_interval": "5s",
                "max_join_backoff": "2s",
            },
            "ingester": {"wal": {"dir": str(wal)}},
            # otherwise the machine's name: schedulers would treat all members as one, which leaves
            # with any of them
            "frontend_worker": {"id": name},
            "runtime_config": {"file": str(self._overrides), "period": "1s"},
        }  # fmt: skip
        return merged(own, self._parts)

    # ---- its life

    def __enter__(self) -> Self:
        try:
            for held in self._held:
                held.close()
            for member in self.processes():
                member.start(wait=False)
            self.gateway.start()
            for member in self.processes():
                member.wait_ready()
            self.wait_whole()
            return self
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            for held in self._held:
                stack.callback(held.close)
            for server in (self.gateway, *self.processes()):
                stack.callback(server.stop, signal.SIGKILL)

    def flush(self) -> None:
        """Restart all processes, to flush their chunks and index to the objects
        (`flush_on_shutdown`).

        `/flush` answers before its flush ends. The index lacks a chunk that is written while a
        member ends, and no compactor finds it.
        """
        for process in self.processes():
            process.stop()
        for process in self.processes():
            process.start(wait=False)
        for process in self.processes():
            process.wait_ready()
        self.wait_whole()

    def objects(self) -> list[Path]:
        """Return the files of chunks."""
        return [path for path in (self.folder / "objects").rglob("*") if path.is_file()]

    def wait_whole(self) -> None:
        """Wait until each running member sees exactly the running members as active."""
        wait_until(self._is_whole, "each member of the ring sees the others", READY_TIMEOUT_SECS)

    def processes(self) -> list[RingMember]:
        return [*self.members, *([self.reader] if self.reader else [])]

    def running(self) -> list[RingMember]:
        return [member for member in self.members if member.is_running]

    def _is_whole(self) -> bool:
        names = {member.folder.name for member in self.running()}
        return all(member.states() == dict.fromkeys(names, "ACTIVE") for member in self.running())


def _servers(members: Sequence[LokiServer]) -> str:
    lines = (f"server 127.0.0.1:{member.port} max_fails=1 fail_timeout=5s;" for member in members)
    return "\n".join(f"    {line}" for line in lines)
