"""Removal of a job's lines from a node's spool and quarantine.

A running agent first ships finished captures, and the purge waits until they are in Loki.
Without an agent, the purge takes its lock and overwrites segments in place, even of running
captures.
"""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from logshipper.errors import ConfigError, LogshipperError, StoreError, os_words
from logshipper_ingest.admin.purge_files import StateFiles
from logshipper_ingest.agent.user_agent import take_lock
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.config.sink_config import SINKS_FOLDER
from logshipper_ingest.config.tenants import NOBODYS, tenant_of
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.slurm.run_search import uid_of
from logshipper_ingest.spool import capture_folder
from logshipper_ingest.spool.purge_pattern import EVERY_LINE, LinePattern
from logshipper_ingest.spool.purge_segments import purge_capture
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.state.checkpoints import STATE_FILE
from logshipper_ingest.state.purge_state import purge_state
from logshipper_ingest.state.sink_states import folders, read_states

_SPOOL_POLL_SECS = 0.2


@dataclass
class PurgeReport:
    """Lines by place, purged or counted (`dry_run`). Its fields are keys of `--json`."""

    job_id: str
    dry_run: bool
    lines: dict[str, int] = field(default_factory=dict)  # by place
    # of Loki, by tenant, behind its Loki's name and `/` where that isn't the first
    requests: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # a sentence for each unreachable place
    shown: int = -1  # lines that Loki still shows, -1 without a check


class LokiPlace(NamedTuple):
    """A place of a job in a Loki. sink: "" for the first one; tenant: "" for the configuration's
    own."""

    sink: str
    tenant: str

    @property
    def text(self) -> str:
        """Text for people and JSON: only the tenant for the first Loki."""
        return f"{self.sink}/{self.tenant}".rstrip("/") if self.sink else self.tenant


class NodePurge:
    """A job's lines in a node's spool and quarantine. Raises StoreError."""

    def __init__(self, config: AgentConfig, job_id: str, pattern: LinePattern) -> None:
        self._config = config
        self._job_id = job_id
        self._pattern = pattern
        state_dir = config.agent.state_dir
        sink_dirs = [os.path.join(state_dir, SINKS_FOLDER, name) for name in folders(state_dir)]
        # of sinks removed from the configuration as well
        self._sink_dirs = [state_dir, *sink_dirs]
        self._files = StateFiles(state_dir, self._sink_dirs, job_id, pattern)

    def look(self, *, dry_run: bool) -> PurgeReport:
        report = PurgeReport(self._job_id, dry_run, {"spool": 0})
        for folder, _ in self._folders():
            report.lines["spool"] += purge_capture(folder, self._pattern, dry_run=True).lines
            if self._pattern is EVERY_LINE and folder.life() is not capture_folder.Life.DEAD:
                words = f"job {self._job_id} runs: it can be purged when it has ended, or some of its lines by --grep"
                raise StoreError(folder.path, words)
        report.lines |= self._files.purge(dry_run=True)
        remembered = sum(
            purge_state(path, self._job_id, self._pattern, dry_run=True) for path in self._states
        )
        if remembered:
            report.lines["state.db"] = remembered
        return report

    @property
    def _states(self) -> list[str]:
        return [os.path.join(sink_dir, STATE_FILE) for sink_dir in self._sink_dirs]

    # Any: options of ServerAccess
    def lokis(self, user: str, certificate: Mapping[str, Any]) -> dict[LokiPlace, LokiClient]:
        """Return clients for each tenant of each Loki. user: the job's user if the node does not
        know it; certificate: cert_file and key_file in place of the configuration's."""
        return {
            LokiPlace("" if sink.is_first else sink.label, tenant): client
            for sink in self._config.lokis
            for tenant, client in self._tenants(sink.server, user, certificate).items()
        }

    def _tenants(
        self, loki: LokiSection, user: str, certificate: Mapping[str, Any]
    ) -> dict[str, LokiClient]:
        access = replace(loki.access, **certificate)
        if not loki.tenant_by:
            return {"": LokiClient(access)}
        identities = self._identities()
        names = {tenant_of(loki.tenant_by, each.user, each.uid) for each in identities}
        if user:
            tenant = tenant_of(loki.tenant_by, user, uid_of(user))
            names.add(tenant)
            if tenant == NOBODYS:
                words = f"{user!r} isn't known here, nor its number: give the number"
                raise ConfigError("--user", [words])
        if not names:
            words = f"job {self._job_id} isn't known on this node; whose it is says whose tenant in Loki it is in"
            raise ConfigError("--user", [words])
        return {name: LokiClient(replace(access, tenant=name)) for name in names}

    def _identities(self) -> Iterator[capture_folder.Identity]:
        for sink in read_states(self._config):
            for checkpoint in sink.state.checkpoints:
                if checkpoint.identity.job_id == self._job_id:
                    yield checkpoint.identity
        yield from (identity for _, identity in self._folders())

    # ---- the spool

    def purge(self, report: PurgeReport, wait_secs: float) -> None:
        """Purge all files, then search each again. Wait for a running agent to ship finished
        captures, or hold its lock."""
        lock = take_lock(self._config.agent.state_dir)
        if lock is None:
            self._wait_shipped(wait_secs)
            report.left += self._in_place()
        else:
            try:
                for folder, _ in self._folders():
                    if self._pattern is EVERY_LINE:
                        _remove(folder)
                    else:
                        purge_capture(folder, self._pattern, dry_run=False)
                for path in self._states:
                    purge_state(path, self._job_id, self._pattern, dry_run=False)
            finally:
                os.close(lock)
        self._files.purge(dry_run=False)
        report.left += self._still_there(is_running=lock is None)

    def _still_there(self, *, is_running: bool) -> list[str]:
        remains = [
            f"{count} lines of {place} still have it: call this again"
            for place, count in self._files.purge(dry_run=True).items()
            if count
        ]
        for path in self._states:
            if purge_state(path, self._job_id, self._pattern, dry_run=True):
                words = f"{path}: what the agent remembers of the job's name or keys has it: call this again"
                remains.append(f"{words} while the agent is stopped" if is_running else words)
        if not is_running:
            remains += self._in_place()
        if self._pattern is not EVERY_LINE and self._pattern.has(self._job_id):
            remains.append(f"the job's id has it: {self._job_id}")
        return remains

    def _wait_shipped(self, wait_secs: float) -> None:
        deadline = time.monotonic() + wait_secs
        bar = Bar("Waiting until the agent has shipped the job", "{:,} B".format)
        total_bytes = 0
        while waiting_bytes := sum(
            folder.bytes_from(SpoolPosition())
            for folder, _ in self._folders()
            if folder.life() is capture_folder.Life.DEAD
        ):
            total_bytes = max(total_bytes, waiting_bytes)
            if time.monotonic() > deadline:
                break
            bar(total_bytes - waiting_bytes, total_bytes)
            time.sleep(_SPOOL_POLL_SECS)
        bar.clear()

    def _in_place(self) -> list[str]:
        """Return the rest in the spool that we may not change."""
        remains: list[str] = []
        for folder, _ in self._folders():
            hits = purge_capture(folder, self._pattern, dry_run=True)
            if hits.lines:
                is_over = folder.life() is capture_folder.Life.DEAD
                state = "the agent hasn't shipped it" if is_over else "its capture goes on"
                words = f"{hits.lines} lines stand in {', '.join(hits.files)}: {state}"
                remains.append(f"{words}; call this again then, or while the agent is stopped")
        return remains

    def _folders(self) -> Iterator[tuple[capture_folder.CaptureFolder, capture_folder.Identity]]:
        """Yield the job's captures in the spool, each open until the next."""
        spool = self._config.agent.spool_dir
        spool_fd = capture_folder.open_spool(spool)
        if spool_fd is None:
            return
        try:
            owner = os.fstat(spool_fd).st_uid
            for name in capture_folder.list_folders(spool_fd):
                try:
                    folder = capture_folder.CaptureFolder(spool_fd, spool, name, owner, node=True)
                except (OSError, LogshipperError):
                    continue  # the agent ignores it as well
                with folder:
                    identity = _identity(folder)
                    if identity is not None and identity.job_id == self._job_id:
                        yield folder, identity
        finally:
            os.close(spool_fd)


def _identity(folder: capture_folder.CaptureFolder) -> capture_folder.Identity | None:
    try:
        return folder.identity(complete=True)
    except LogshipperError:
        return None


def _remove(folder: capture_folder.CaptureFolder) -> None:
    try:
        while not folder.remove():
            pass
    except OSError as error:
        raise StoreError(folder.path, f"can't be removed: {os_words(error)}") from None
