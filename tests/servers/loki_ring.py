"""Loki as clusters run it: three processes in one ring, found by memberlist, each line kept by three
of them, tenants, objects in a folder that they share; and the nginx before them that knows all of
them, as that of Loki's Helm chart does."""

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
# of a member that hangs: so long it counts as one that answers
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
    """One of the processes. wal: the folder of its write-ahead log."""

    def __init__(self, folder: Path, wal: Path, parts: Mapping[str, Any]) -> None:
        self.wal = wal
        super().__init__(auth_enabled=True, deletes=True, parts=parts, folder=folder)

    def hang(self) -> None:
        """Until `go_on`: its sockets are open, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def leave(self) -> None:
        """For good, as a site makes a ring smaller: what it holds is flushed, and it ends."""
        parameters = {"flush": "true", "delete_ring_tokens": "true", "terminate": "true"}
        self.post("/ingester/shutdown", **parameters)
        wait_until(lambda: not self.is_running, f"{self.url} has left the ring", STOP_TIMEOUT_SECS)
        self.stop()

    def metric(self, name: str) -> float:
        """The sum of its series."""
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self._get("/metrics").text, re.M)
        return sum(map(float, values))

    def states(self) -> dict[str, str]:
        """What it sees of the ring of ingesters, by their names; empty where it doesn't answer."""
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
    """Asks one member after the other, and leaves out for some seconds one that it couldn't connect
    to, or that didn't answer in time: takers get pushes, readers all else, the first of these what
    is about deleting."""

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
    """Three members and their gateway; `with` starts them, and closes them. overrides: limits of
    tenants; wals: folders of members' write-ahead logs, by number; parts: over each member's
    configuration; read_secs: how long the gateway waits for a member; apart: members take lines
    only, and one process more, `reader`, answers questions and has the compactor, which else each
    member has for itself."""

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
        # held until the start, so that nothing else here takes them
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
        """The gateway's: what an agent, or who reads, is given."""
        return self.gateway.url

    def set_overrides(self, limits: Mapping[str, Mapping[str, object]]) -> None:
        """Limits of tenants, by name; processes take them over within a second or two."""
        scratch = self._overrides.with_suffix(".new")
        scratch.write_text(yaml.safe_dump({"overrides": dict(limits)}))
        scratch.rename(self._overrides)

    def _reader(self) -> RingMember:
        folder = self.folder / "reader"
        config = self._config(folder.name, folder / "wal", free_port())
        alone: dict[str, Any] = {  # it waits for no others, as it would for 10 minutes
            "target": "read",
            "legacy_read_target": True,  # with the compactor
            "index_gateway": {"ring": {"replication_factor": 1}},
            "compactor": {"compactor_ring": {"kvstore": {"store": "inmemory"}}},
        }
        return RingMember(folder, folder / "wal", merged(config, alone))

    def add_member(self) -> RingMember:
        """One more, which the gateway doesn't know; it isn't started."""
        number = self._member_count
        self._member_count += 1
        folder = self.folder / f"member{number}"
        wal = self._wals.get(number, folder / "wal")
        port = self._gossip_ports[number] if number < MEMBERS else free_port()
        member = RingMember(folder, wal, self._config(folder.name, wal, port))
        self.members.append(member)
        return member

    def remove_member(self, member: RingMember) -> None:
        """One that was added."""
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
            # else the machine's name: schedulers would take all for one, which leaves as they do
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
        """All that members have in memory goes to the objects, and their index with it: when they
        end, as their setting `flush_on_shutdown` says. `/flush` answers before it has flushed: of a
        chunk that is written while a member ends the index knows nothing, and no compactor finds
        it."""
        for process in self.processes():
            process.stop()
        for process in self.processes():
            process.start(wait=False)
        for process in self.processes():
            process.wait_ready()
        self.wait_whole()

    def objects(self) -> list[Path]:
        """Files of chunks."""
        return [path for path in (self.folder / "objects").rglob("*") if path.is_file()]

    def wait_whole(self) -> None:
        """Until each member that runs sees all that do as active, and no other."""
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
