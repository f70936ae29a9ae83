"""Search for the captured runs of ended jobs, in the tenants of a Loki."""

import pwd
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from logshipper.errors import QueryError
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.config.sink_config import SinkConfig
from logshipper_ingest.config.tenants import USER, tenant_of, tenant_of_uid
from logshipper_ingest.loki.account import JobAccount
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.loki.reader import Entries
from logshipper_ingest.model.end_record import SECOND_NS, EndRecord
from logshipper_ingest.slurm.captured import Run, ask, run_of
from logshipper_ingest.slurm.intake import Say
from logshipper_ingest.slurm.waiting import WaitingEnd, WaitingEnds

BY_UID_AFTER_SECS = 60  # until the search by uid, for nodes that did not know the user's name


class Answers(NamedTuple):
    """Answers of tenants about records, by the records' names."""

    runs: dict[str, Run]  # the run of each record
    homes: dict[str, str]  # the tenant of each record
    unanswered: set[str]  # records of tenants without an answer


class RunSearch:
    """Questions to a Loki about ended jobs. client: asks without a tenant."""

    def __init__(
        self, config: SinkConfig[LokiSection], client: Entries, waiting_ends: WaitingEnds, say: Say
    ) -> None:
        self._config = config
        self._client = client
        self._waiting_ends = waiting_ends
        self._say = say
        self._silent: set[str] = set()  # tenants without an answer, already logged
        self._uids: dict[str, int] = {}  # by user, of one round

    def begin_round(self) -> None:
        """Forget the users' ids."""
        self._uids.clear()

    @property
    def put_off_ns(self) -> int:
        return int(self._config.delivery.retry_max_secs * SECOND_NS)

    def find(self, ends: Sequence[WaitingEnd], now_ns: int, longest_ns: int) -> Answers:
        """Search the runs of ended jobs. Raises QueryError if Loki as a whole fails."""
        answers = Answers({}, {end.name: self.tenant(end.record) for end in ends}, set())
        self._ask_tenants(ends, answers, now_ns, longest_ns)
        by_uid = [
            end
            for end in ends
            if end.name not in answers.runs
            and end.name not in answers.unanswered
            and USER.fullmatch(answers.homes[end.name])
            and now_ns - end.taken_ns >= BY_UID_AFTER_SECS * SECOND_NS
        ]
        uids = {end.name: self._uid(end.record.user) for end in by_uid}
        by_uid = [end for end in by_uid if uids[end.name] >= 0]
        answers.homes.update({end.name: tenant_of_uid(uids[end.name]) for end in by_uid})
        self._ask_tenants(by_uid, answers, now_ns, longest_ns)
        return answers

    def _ask_tenants(
        self, ends: Sequence[WaitingEnd], answers: Answers, now_ns: int, longest_ns: int
    ) -> None:
        """Query the records' tenants and add their answers. Before an error is raised, postpone its
        records, so that others come next."""
        by_tenant: dict[str, list[WaitingEnd]] = defaultdict(list)
        for end in ends:
            by_tenant[answers.homes[end.name]].append(end)
        failed: dict[str, QueryError] = {}
        for tenant, tenant_ends in by_tenant.items():
            try:
                jobs = self._ask(tenant, [end.record for end in tenant_ends], now_ns, longest_ns)
            except QueryError as error:
                if not tenant:
                    raise
                failed[tenant] = error
                answers.unanswered.update(end.name for end in tenant_ends)
                if not error.status:
                    break
            else:
                self._silent.discard(tenant)
                for end in tenant_ends:
                    run = run_of(end.record, jobs.get(end.record.job_id))
                    if run is not None:
                        answers.runs[end.name] = run
        self._say_silent(failed)
        general = _of_loki_itself(failed, len(by_tenant))
        if general is None:
            return
        is_alone = general.status and len(by_tenant) == 1
        if not is_alone or not self._answers_others(ends, now_ns):
            again_ns = now_ns + self.put_off_ns
            self._waiting_ends.put_off(dict.fromkeys(answers.unanswered, again_ns))
            raise general

    def _answers_others(self, ends: Sequence[WaitingEnd], now_ns: int) -> bool:
        """Return whether Loki answers the same question without a tenant."""
        try:
            self._ask("", [end.record for end in ends], now_ns, SECOND_NS)
        except QueryError:
            return False
        return True

    def _ask(
        self, tenant: str, records: Sequence[EndRecord], now_ns: int, longest_ns: int
    ) -> Mapping[str, JobAccount]:
        cluster = self._config.cluster
        if not tenant:
            return ask(self._client, cluster, records, now_ns, longest_ns)
        with LokiClient(replace(self._config.server.access, tenant=tenant)) as client:
            return ask(client, cluster, records, now_ns, longest_ns)

    def _say_silent(self, failed: Mapping[str, QueryError]) -> None:
        for tenant, error in failed.items():
            if error.status and tenant not in self._silent:
                self._silent.add(tenant)
                self._say(f"ends of Slurm jobs: {error}; those of the tenant {tenant} wait")

    def tenant(self, record: EndRecord) -> str:
        by = self._config.delivery.tenant_by
        if not by:
            return ""
        uid = -1 if USER.fullmatch(record.user) else self._uid(record.user)
        return tenant_of(by, record.user, uid)

    def _uid(self, user: str) -> int:
        """Look up a user's id once per round: this may query a directory server."""
        if user not in self._uids:
            self._uids[user] = uid_of(user)
        return self._uids[user]


def _of_loki_itself(failed: Mapping[str, QueryError], tenant_count: int) -> QueryError | None:
    """Return an error that concerns all tenants: Loki is unreachable, or all fail. A single tenant
    may just have reached its limits."""
    all_fail = len(failed) == tenant_count
    for error in failed.values():
        if not error.status or (all_fail and (tenant_count > 1 or error.status >= 500)):
            return error
    return None


def uid_of(user: str) -> int:
    """Return a user's id, or -1 if unknown here. Schedulers write a number for a user without a
    name."""
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return -1
