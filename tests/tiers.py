"""Which tier each test is of, so which command runs it: by its file or folder, and by the fixtures that it asks for.
tests/conftest.py gives each test the marker of its tier; docs/development.md has the table of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parent
CHECK, CORE, ALL = "check", "core", "all"
MARKERS = {
    CHECK: "pure parts: bytes and a clock in, values out (make check)",
    CORE: "what needs no server, no root and no program of others' (make test, which also runs `check`)",
    ALL: "real servers and schedulers, programs of others', what root must do (make test-all, which runs them all)",
}
# a test that asks for one of them is of the last tier, wherever it stands
FIXTURES = frozenset("servers influxdbs influxdb_1_8 root_user program_of_others".split())

# files of tests/ without their .py, and folders
_PLACES = {
    CHECK: """
        test_agent_config test_backoff test_capture_account test_check_loki_limits test_classifier test_commands
        test_config test_entries test_frame_builder test_hostile_frames test_job_metrics test_layers
        test_line_protocol test_loki_push test_masking test_metadata test_observe_records test_observe_series
        test_observe_words test_policies test_ranks test_ranks_properties test_renderer test_renderer_colours
        test_renderer_fuzz test_renderer_properties test_screen test_segment test_segment_damage test_segment_reader
        test_segment_reader_properties test_slurm_states_records test_task_analytics test_text_table test_tiers
        test_x_axis test_x_axis_properties
    """,
    CORE: """
        grafana page test_access test_access_client test_agent_start test_analytics test_analyze
        test_analyze_imports test_backpressure test_batch_output test_capture test_capture_folder test_captures
        test_check_slurm test_checkpoints test_colours test_coming_from test_completion test_compose test_core_files
        test_coverage test_csv_rows test_deploy test_disk_metrics test_docs test_drain test_emit
        test_events_following test_examples test_export test_fault_points test_few_descriptors test_follow_nodes
        test_fsck test_grafana_lint test_grafana_render test_graph_feeds test_heap test_hooks test_hostile_names
        test_hostile_segments test_import_balsam test_import_hostile test_import_killed test_import_qcg
        test_import_xt test_info test_influxdb_points test_job_context test_job_socket test_kubernetes
        test_launchers test_learner test_listing test_local_store test_local_store_at_once test_local_store_faults
        test_local_store_lines test_loki_ahead test_loki_faults test_loki_following test_loki_jobs test_loki_reading
        test_loki_reading_real test_loki_sink test_loki_slurm_ends test_metrics_access test_metrics_docs
        test_metrics_server test_model_segments test_model_shipping test_model_spool test_mpi test_node_spool
        test_node_status test_observe_graphs test_observe_metadata test_older_version test_overlay test_pace
        test_peer test_plot_runs test_privacy test_private_store test_prometheus test_purge test_purge_everywhere
        test_python_api test_quarantine test_reading test_reading_terminal test_regular_expressions test_relay
        test_remote_write test_removed_for_good test_render test_renderer_programs test_replay test_run
        test_run_signals test_run_survival test_run_terminal test_segment_writer test_seldom test_server_check
        test_servers test_service_notify test_shipper test_shipper_hostile test_side_pipe test_sidecar
        test_silent_captures test_site test_slurm_channel test_slurm_fault_points test_slurm_hours
        test_slurm_jobs_folder test_slurm_relay test_slurm_relay_busy test_slurm_relay_deaths test_slurm_relay_lines
        test_slurm_relay_modes test_slurm_relay_rights test_slurm_states test_slurm_states_hook
        test_slurm_two_streams test_snapshots test_source_snippets test_sources_balsam_events test_spool
        test_spool_limits test_spool_overuse test_telegraf_hostile test_telegraf_modes test_two_streams
        test_unidentified test_unsent test_url test_user_agent test_user_events test_users_modules
        test_waiting_for_jobs test_wheel
    """,
    ALL: """
        gateway sge slurm test_alerts test_analytics_oracles test_both_stores test_events_both_stores
        test_full_state_disk test_help_examples test_influxdb test_loki test_loki_side_faults
        test_metrics_prometheus test_metrics_scraped test_node_agent test_packages test_purge_loki test_qcg_run
        test_sinks test_slurm_states_real test_telegraf test_telegraf_agent
    """,
}
ROWS: Mapping[str, str] = {place: tier for tier, places in _PLACES.items() for place in places.split()}


def worker_of(file: Path) -> str:
    """Tests with the same answer run in one worker, one after another: those of a row, and all that need the C parts,
    which are built once for them."""
    row = row_of(file)
    return "test_slurm" if row.startswith(("test_slurm_", "test_check_slurm")) else row


def row_of(file: Path) -> str:
    """What would be the row of a file."""
    return file.relative_to(TESTS).with_suffix("").parts[0]


def tier_of(file: Path, fixtures: Iterable[str] = ()) -> str | None:
    """The tier of a test; None where its file stands in no row."""
    tier = ROWS.get(row_of(file))
    return ALL if tier and not FIXTURES.isdisjoint(fixtures) else tier


def places(tiers: Iterable[str]) -> list[str]:
    """Files and folders of these tiers, from the repository's root, in the order of the rows."""
    paths = (TESTS / place for place, tier in ROWS.items() if tier in tiers)
    return [str((path if path.is_dir() else path.with_suffix(".py")).relative_to(TESTS.parent)) for path in paths]
