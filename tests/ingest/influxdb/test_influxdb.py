"""The agent's InfluxDB sink with Debian's InfluxDB 1.6, and with an InfluxDB 1.8 by the interface
of 2.x. Despite faults of server and agent, every record is stored once, or in the quarantine with
the server's message."""

import json
import os
import signal
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config import agent_config
from tests.servers.running import InfluxdbServer, LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.segment_factory import SECOND_NS, CaptureWriter
from tests.tools.fakes.tls_gateway import Authority
from tests.tools.stores.node_agents import NodeAgent, cluster

__all__ = ["cluster"]  # a fixture
RECORDS = 300
# a record's `mark` is its number, which tells records apart
PRINTING = """
import json, sys, time
for number in range(int(sys.argv[1])):
    record = {"mark": number, "loss": 0 if number == 0 else 1 / number, "opt": {"lr": 0.1}, "good": number % 2 == 0}
    if number in json.loads(sys.argv[2]):
        record["loss"] = "unknown"
    print(json.dumps(record), flush=True)
    time.sleep(float(sys.argv[3]))
"""


class Site:
    """An agent with a Loki and an InfluxDB. by_2x: whether the sink uses the interface of 2.x."""

    def __init__(
        self,
        folder: Path,
        loki: LokiServer,
        influxdb: InfluxdbServer,
        cluster: str,
        *,
        by_2x: bool = False,
        **options: Any,
    ) -> None:
        self.influxdb = influxdb
        self.database = f"d{uuid.uuid4().hex[:8]}"
        influxdb.query(f"CREATE DATABASE {self.database}")
        quick = {
            "batch_wait_secs": 0.1,
            "retry_min_secs": 0.05,
            "retry_max_secs": 0.2,
            "timeout_secs": 2,
        }
        where = (
            {"org": "any", "bucket": f"{self.database}/autogen"}
            if by_2x
            else {"database": self.database}
        )
        table = {"url": influxdb.url, **where, **quick, **options}
        self.agent = NodeAgent(folder, loki.url, cluster=cluster, influxdb=table)
        self.quarantine = self.agent.state / "sinks" / "influxdb" / "quarantine"

    def print(
        self,
        records: int = RECORDS,
        odd: tuple[int, ...] = (),
        pause_secs: float = 0.0,
        job: str = "j",
    ) -> None:
        words = (sys.executable, "-c", PRINTING, str(records), json.dumps(odd), str(pause_secs))
        done = self.agent.run(*words, options=("--job-id", job))
        assert (done.returncode, done.stderr) == (0, b"")  # nor does a local store keep it

    def spool(self, job: str, odd: tuple[int, ...] = ()) -> None:
        """Spool a whole capture like that of `print`, without a running agent."""
        identity = NodeIdentity(job, 1, "", 0, "train.py", os.geteuid(), "me", gid=os.getegid())
        folder = Path(prepare_capture(agent_config.load(str(self.agent.config)).agent, identity))
        with CaptureWriter.in_node_spool(
            folder, start_ns=time.time_ns() - 600 * SECOND_NS
        ) as capture:
            capture.start()
            for begin in range(0, RECORDS, 50):
                numbers = range(begin, begin + 50)
                capture.metadata(
                    *(
                        {"mark": number, "loss": "unknown" if number in odd else 0.5}
                        for number in numbers
                    )
                )
            capture.end()
            capture.close()

    def rows(self) -> list[dict[str, Any]]:
        return self.influxdb.query("SELECT * FROM logshipper", self.database)

    def marks(self) -> Counter[int]:
        return Counter(int(row["mark"]) for row in self.rows())

    def quarantine_entries(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for file in self.quarantine.glob("*.jsonl")
            for line in file.read_text().splitlines()
        ]

    def sink(self) -> dict[str, Any]:
        (state,) = [sink for sink in self.agent.status()["sinks"] if sink["name"] == "influxdb"]
        return dict(state)


@pytest.fixture
def site(loki: LokiServer, influxdb: InfluxdbServer, cluster: str, tmp_path: Path) -> Site:
    return Site(tmp_path / "node", loki, influxdb, cluster)


def test_every_record_is_a_point_with_few_tags(site: Site, cluster: str) -> None:
    with site.agent as agent:
        site.print()
        printed = """{"none": null, "time": 5, "who": "ann", "loss": NaN}"""
        agent.run("printf", printed, options=("--job-id", "odd"))
        agent.wait_shipped()
        rows = site.rows()
        ours = [row for row in rows if row["job_id"].startswith("j.")]
        assert site.influxdb.query("SHOW TAG KEYS", site.database) == [
            {"tagKey": name} for name in ("attempt", "cluster", "host", "job_id", "task", "user")
        ]
        assert sorted(row["mark"] for row in ours) == list(range(RECORDS))
        assert len({row["time"] for row in ours}) == RECORDS
        assert {(row["cluster"], row["host"], row["opt.lr"]) for row in ours} == {
            (cluster, "n1", 0.1)
        }
        assert [row["good"] for row in sorted(ours, key=lambda row: row["mark"])][:2] == [
            True,
            False,
        ]
        (odd,) = [row for row in rows if row not in ours]  # InfluxDB has no NaN
        assert (odd["time_"], odd["who"], odd["loss"]) == (5, "ann", None)
        assert site.quarantine_entries() == []
        assert site.sink()["ledger"]["balances"]
        assert (
            'logshipper_agent_entries_total{kind="metadata",sink="influxdb"} 301.0'
            in agent.metrics()
        )
        assert (
            'logshipper_agent_influxdb_values_left_out_total{sink="influxdb"} 2.0'
            in agent.metrics()
        )
        assert "influx influxdb, http://127.0.0.1" in agent.call("status").stdout
        checked = agent.call("check").stdout
        assert (
            f"ok    influxdb: InfluxDB at {site.influxdb.url} takes points for the database"
            in checked
        )


# like MLO's training code, but by TCP, so that no measurement is lost at the end
SENDING = """
import os, socket, sys
host, port = os.environ["LOGSHIPPER_TELEGRAF"].split(":")
with socket.create_connection((host, int(port))) as connection:
    connection.sendall(sys.argv[1].encode())
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
"""
HOUR_NS = 3600 * SECOND_NS
MLO_QUERY = """SELECT mean("value") FROM "training_loss" WHERE ("experiment_id" = '10') AND $timeFilter
GROUP BY time($__interval), "host", "user" fill(none)"""  # a query like Grafana's


def test_measurements_are_there_as_they_were_sent(
    loki: LokiServer, influxdb: InfluxdbServer, cluster: str, tmp_path: Path
) -> None:
    """Queries have the form of dashboards for MLO's measurements."""
    site = Site(tmp_path / "node", loki, influxdb, cluster, measurements=True)
    hour_ns = time.time_ns() // HOUR_NS * HOUR_NS - HOUR_NS
    tags = "host=iccluster45,user=vogels,experiment_id=10"
    sent = [
        f"training_loss,{tags} iteration={i}i,value={0.5 / i} {hour_ns + i * SECOND_NS}"
        for i in (1, 2)
    ]
    sent += [
        "test_metric value=123",
        "test_metric,time=a,job_id=own value_a=100,value_b=100,value_c=True",
    ]
    with site.agent as agent:
        done = agent.run(
            sys.executable, "-c", SENDING, "".join(f"{line}\n" for line in sent),
            options=("--job-id", "mlo", "--telegraf"),
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        agent.run("echo", '{"printed": 1, "tags": {"a": "b"}}', options=("--job-id", "other"))
        agent.wait_shipped()
        assert site.influxdb.query("SHOW MEASUREMENTS", site.database) == [
            {"name": name} for name in ("logshipper", "test_metric", "training_loss")
        ], "what was printed is no measurement"
        between = f"time >= {hour_ns} AND time < {hour_ns + 10 * SECOND_NS}"
        grouped = site.influxdb.query(
            MLO_QUERY.replace("$timeFilter", between).replace("$__interval", "1s"), site.database
        )
        assert [(row["time"] - hour_ns, row["host"], row["user"], row["mean"]) for row in grouped] == [
            (SECOND_NS, "iccluster45", "vogels", 0.5), (2 * SECOND_NS, "iccluster45", "vogels", 0.25),
        ]  # fmt: skip
        (last,) = site.influxdb.query(
            'SELECT last("iteration") FROM "training_loss"', site.database
        )
        assert last["last"] == 2
        rows = site.influxdb.query('SELECT * FROM "test_metric"', site.database)
        single, several = sorted(rows, key=lambda row: row["value"] is None)
        assert (single["value"], single["host"]) == (123, "n1")
        assert single["job_id"].startswith("mlo.")
        assert (several["value_a"], several["value_c"]) == (100, True)
        assert (several["time_"], several["job_id"], several["job_id_"]) == (
            "a",
            "own",
            single["job_id"],
        )
        ours = site.rows()
        assert len(ours) == len(sent) + 1, "what is written without the option is there, too"
        assert {row["training_loss.value"] for row in ours} == {0.5, 0.25, None}
        assert site.quarantine_entries() == []
        assert site.sink()["ledger"]["balances"]


def test_type_conflicts_are_put_aside_alone_and_replayed(site: Site) -> None:
    odd = (5, 6, 7, 100, 250)
    with site.agent as agent:
        site.print(odd=odd)
        agent.wait_shipped()
        assert site.marks() == Counter(set(range(RECORDS)) - set(odd))
        entries = site.quarantine_entries()
        assert sorted(json.loads(entry["line"])["mark"] for entry in entries) == list(odd)
        assert {entry["reason"] for entry in entries} == {"type_conflict"}
        assert (
            'input field "loss" on measurement "logshipper" is type string, already exists'
            in entries[0]["words"]
        )
        assert (
            'refused_entries_total{reason="type_conflict",sink="influxdb"} 5.0' in agent.metrics()
        )
        # refused again, and still in the quarantine
        assert agent.call("replay", "--sink", "influxdb").returncode == 3
        assert len(site.quarantine_entries()) == len(odd)
        site.influxdb.query("DROP MEASUREMENT logshipper", site.database)
        assert agent.call("replay", "--sink", "influxdb").returncode == 0
        assert site.marks() == Counter(odd)
        assert site.quarantine_entries() == []


def test_server_and_agent_are_killed_and_nothing_is_lost_or_twice(
    influxdbs: None, loki: LokiServer, cluster: str, tmp_path: Path
) -> None:
    with InfluxdbServer() as influxdb:
        site = Site(tmp_path / "node", loki, influxdb, cluster)
        agent = site.agent
        for number, point in enumerate(("pushed", "sent", "committed")):
            site.spool(f"j{number}", odd=(3,) if number else ())
            agent.start(crash_at=point, times=2, wait=False)
            wait_until(agent.has_ended, f"it kills itself at {point}: {agent.log.read_text()}")
            assert (agent.folder / f"crashed-{point}").exists(), agent.log.read_text()
        with agent.start():
            before = Counter(row["job_id"] for row in site.rows())
            influxdb.stop(signal.SIGKILL)
            site.spool("away")
            wait_until(lambda: site.sink()["loki"]["trouble"], "status tells of it")
            influxdb.start()
            agent.wait_shipped()
        jobs = [f"j{number}" for number in range(3)] + ["away"]
        points = Counter((row["job_id"], int(row["mark"])) for row in site.rows())
        odd = {("j1", 3), ("j2", 3)}
        good_points = Counter({(job, mark) for job in jobs for mark in range(RECORDS)} - odd)
        assert points == good_points, (
            f"before InfluxDB was killed there were {before}; {agent.log.read_text()}"
        )
        assert Counter((entry["metadata"]["job_id"], json.loads(entry["line"])["mark"])
                       for entry in site.quarantine_entries()) == Counter(odd)  # fmt: skip


def test_credentials_that_are_wrong_hold_all_until_they_are_fixed(
    influxdbs: None, loki: LokiServer, cluster: str, tmp_path: Path
) -> None:
    """The connection uses TLS with a private CA."""
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("influxdb", "IP:127.0.0.1")
    with InfluxdbServer(auth_enabled=True, tls=(*pair, authority.ca)) as influxdb:
        influxdb.query("CREATE USER agent WITH PASSWORD 's3cret-word' WITH ALL PRIVILEGES")
        influxdb.auth = ("agent", "s3cret-word")
        secret = tmp_path / "password"
        secret.write_text("wrong-word\n")
        secret.chmod(0o600)
        access: dict[str, Any] = {
            "ca_file": str(authority.ca),
            "username": "agent",
            "password_file": str(secret),
        }
        site = Site(tmp_path / "node", loki, influxdb, cluster, **access)
        with site.agent as agent:
            site.print(20)
            wait_until(
                lambda: (site.sink()["loki"]["trouble"] or {}).get("status") == 401, "it is told"
            )
            assert "authorization failed" in agent.log.read_text()
            assert "look at [influxdb] in the agent's configuration" in agent.log.read_text()
            assert len(agent.captures()) == 1
            secret.write_text("s3cret-word\n")
            agent.wait_shipped()
            assert site.marks() == Counter(range(20))
            assert "wrong-word" not in agent.log.read_text()


def test_a_database_that_is_missing_holds_all(site: Site) -> None:
    site.influxdb.query(f"DROP DATABASE {site.database}")
    with site.agent as agent:
        site.print(5)
        wait_until(
            lambda: (site.sink()["loki"]["trouble"] or {}).get("status") == 404, "it is told"
        )
        assert "wrong influxdb: " in agent.call("check").stdout
        site.influxdb.query(f"CREATE DATABASE {site.database}")
        agent.wait_shipped()
        assert site.marks() == Counter(range(5))
        assert site.quarantine_entries() == []
        purged = agent.call("purge", "--job", "x", "--yes", "--no-loki")
        assert "influxdb isn't purged: metadata of the job may be there" in purged.stderr


def test_by_the_interface_of_2x_all_is_there_once_whatever_befalls_the_server(
    influxdb_1_8: str, loki: LokiServer, cluster: str, tmp_path: Path
) -> None:
    """Faults are conflicts, a wrong token and a missing database at first, and SIGKILL."""
    with InfluxdbServer(influxdb_1_8, auth_enabled=True) as influxdb:
        influxdb.query("CREATE USER agent WITH PASSWORD 's3cret-word' WITH ALL PRIVILEGES")
        influxdb.auth = ("agent", "s3cret-word")
        token = tmp_path / "token"
        token.write_text("agent:wrong-word\n")
        token.chmod(0o600)
        site = Site(tmp_path / "node", loki, influxdb, cluster, by_2x=True, token_file=str(token))
        influxdb.query(f"DROP DATABASE {site.database}")
        with site.agent as agent:

            def waits_for(status: int) -> bool:
                return bool((site.sink()["loki"]["trouble"] or {}).get("status") == status)

            site.print(odd=(5, 100))
            wait_until(lambda: waits_for(401), "the token is wrong")
            token.write_text("agent:s3cret-word\n")
            wait_until(lambda: waits_for(404), "the database is missing")
            influxdb.query(f"CREATE DATABASE {site.database}")
            agent.wait_shipped()
            influxdb.stop(signal.SIGKILL)
            site.spool("away", odd=(7,))
            wait_until(lambda: waits_for(0), "it is away")
            influxdb.start()
            agent.wait_shipped()
            assert (
                f"takes points for the bucket {site.database}/autogen" in agent.call("check").stdout
            )
        points = Counter((row["job_id"].partition(".")[0], int(row["mark"])) for row in site.rows())
        odd = {("j", 5), ("j", 100), ("away", 7)}
        assert points == Counter(
            {(job, mark) for job in ("j", "away") for mark in range(RECORDS)} - odd
        )
        assert sorted(json.loads(entry["line"])["mark"] for entry in site.quarantine_entries()) == [
            5,
            7,
            100,
        ]
        assert {entry["reason"] for entry in site.quarantine_entries()} == {"type_conflict"}
