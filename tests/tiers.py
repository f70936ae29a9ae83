"""The tier of each test, which decides the command that runs it. A test's file or folder and its
fixtures select the tier.

tests/conftest.py adds the tier as a marker. docs/development.md has a table of the tiers.
"""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parent
CHECK, CORE, ALL = "check", "core", "all"
MARKERS = {
    CHECK: "pure parts: bytes and a clock in, values out (make check)",
    CORE: "what needs no server, no root and no program of others' (make test, which also runs `check`)",
    ALL: "real servers and schedulers, programs of others', what root must do (make test-all, which runs them all)",
}
# fixtures that put a test into the last tier, in any file
FIXTURES = frozenset(
    "lokis prometheuses influxdbs influxdb_1_8 otel_collectors victoria_metrics root_user program_of_others".split()
)

# files of tests/ without their .py, and folders; the longest matching row counts
_PLACES = {
    CHECK: """
        ingest/checks/test_check_loki_limits ingest/config/test_agent_config ingest/console/test_text_table
        ingest/metrics/test_job_metrics ingest/model/test_capture_account ingest/model/test_hostile_frames
        ingest/model/test_key_reports
        ingest/model/test_ranks ingest/model/test_ranks_properties ingest/model/test_slurm_states_records
        ingest/model/test_x_axis ingest/model/test_x_axis_properties ingest/servers/test_backoff
        ingest/servers/test_loki_push ingest/shipping/test_entries ingest/spool/test_segment_reader
        ingest/spool/test_segment_reader_properties logshipper/classify/test_classifier
        logshipper/classify/test_commands logshipper/classify/test_metadata logshipper/classify/test_policies
        logshipper/classify/test_text_records
        logshipper/render/test_renderer logshipper/render/test_renderer_colours
        logshipper/render/test_renderer_fuzz logshipper/render/test_renderer_properties
        logshipper/render/test_screen logshipper/sidecar/test_frame_builder logshipper/spool/test_segment
        logshipper/spool/test_segment_damage logshipper/telegraf/test_line_protocol logshipper/test_config
        logshipper/test_light_imports
        logshipper/masks/test_masking logshipper/masks/test_shape_mask observe/analytics/test_task_analytics
        observe/base/test_bar_width
        observe/graphs/test_observe_series
        observe/graphs/test_observe_words observe/model/test_observe_records project/test_layers
        project/test_tiers vm/test_answers
    """,
    CORE: """
        observe/page spank logshipper ingest observe grafana project deploy vm
    """,
    ALL: """
        gateway sge slurm
        deploy/test_alerts deploy/test_packages deploy/test_release
        ingest/admin/test_purge_loki ingest/agent/test_full_state_disk
        ingest/agent/test_node_agent ingest/agent/test_sinks ingest/imports/test_qcg_run
        ingest/influxdb/test_influxdb ingest/loki/test_loki ingest/metrics/test_long_term
        ingest/metrics/test_metrics_prometheus ingest/metrics/test_metrics_scraped ingest/shipping/test_loki_side_faults
        ingest/slurm/test_slurm_states_real logshipper/start/test_launchers
        logshipper/telegraf/test_telegraf
        logshipper/telegraf/test_telegraf_agent observe/analytics/test_analytics_oracles
        observe/api/test_both_stores observe/api/test_events_both_stores observe/commands/test_help_examples
        observe/commands/reading/test_export_trackers
        observe/page/test_accessibility observe/page/graphs/test_compare observe/page/console/test_console_wrap
        observe/page/test_events observe/page/graphs/test_gaps observe/page/graphs/test_graphs
        observe/page/test_hostile observe/page/test_modules
        spank/test_releases spank/test_slurm_fault_points spank/test_slurm_jobs_folder spank/test_slurm_relay_busy
        spank/test_slurm_relay_deaths spank/test_slurm_relay_lines spank/test_slurm_relay_modes
        spank/test_slurm_two_streams
    """,
}
ROWS: Mapping[str, str] = {
    place: tier for tier, places in _PLACES.items() for place in places.split()
}
# folders whose tests share a browser, a cluster or compiled programs, the longest first
# Slurm's clusters run one after another: two at once overload two cores
TOGETHER = ("slurm", "spank", "observe/page", "grafana", "gateway", "sge")
# files that take half a minute or more of a processor, or a minute in all
LONG = (
    "project/test_regular_expressions",
    "observe/commands/reading/test_render",
    "deploy/test_ansible",
    "deploy/test_packages",
    "ingest/shipping/test_loki_side_faults",
    "ingest/metrics/test_long_term",
    "ingest/shipping/test_loki_ring",
    "ingest/agent/test_node_agent",
    "observe/commands/test_help_examples",
)
COMPILED = "ingest/checks/test_check_slurm"  # by a fixture of spank's tests


@functools.cache  # thousands of tests share a file
def worker_of(file: Path) -> str:
    """Return the name of a file's group. Tests of one group run in one worker, in order: those of a
    file, or of a folder in TOGETHER."""
    place = _place(file)
    if place == COMPILED:
        return "spank"
    return next((folder for folder in TOGETHER if place.startswith(f"{folder}/")), place)


def rank_of(group: str) -> int:
    """Return a group's place in the order of the run. Long ones begin early, so that no worker is
    busy alone at the end."""
    first = (*TOGETHER, *LONG)
    return first.index(group) if group in first else len(first)


def tier_of(file: Path, fixtures: Iterable[str] = ()) -> str | None:
    """Return the tier of a test, or None if its file has no row."""
    tier = _tier_of_file(file)
    return ALL if tier and not FIXTURES.isdisjoint(fixtures) else tier


def places(tiers: Iterable[str]) -> list[str]:
    """Return the files and folders of these tiers, relative to the repository, in the order of the
    rows."""
    paths = (TESTS / place for place, tier in ROWS.items() if tier in tiers)
    return [
        str((path if path.is_dir() else path.with_suffix(".py")).relative_to(TESTS.parent))
        for path in paths
    ]


@functools.cache
def _tier_of_file(file: Path) -> str | None:
    place = Path(_place(file))
    return next((ROWS[str(row)] for row in (place, *place.parents) if str(row) in ROWS), None)


def _place(file: Path) -> str:
    """Return a file's name in the form of a row."""
    return str(file.relative_to(TESTS).with_suffix(""))
