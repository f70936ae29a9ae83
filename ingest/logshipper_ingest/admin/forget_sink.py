"""`logshipper-agent forget`: removes the checkpoints of a sink that is no longer in the
configuration. Removes its quarantine only with --discard-quarantine."""

import os
import shutil
import sys
from contextlib import closing, suppress

from logshipper.errors import ConfigError, StoreError, os_words
from logshipper.safe_text import safe
from logshipper_ingest.agent.user_agent import take_lock
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.loki_section import FIRST_SINK
from logshipper_ingest.config.sink_config import SINKS_FOLDER
from logshipper_ingest.console.console_script import warn
from logshipper_ingest.console.text_table import shown_size
from logshipper_ingest.slurm.waiting import FILE as ENDS_FILE
from logshipper_ingest.sqlite_file import SUFFIXES
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.state.checkpoints import STATE_FILE, Checkpoints
from logshipper_ingest.state.sink_states import removed_sinks

EXIT_LEFT = 3


def call(config: AgentConfig, sink_name: str, *, discard_quarantine: bool) -> int:
    """Forget a sink and return the exit code. sink_name: as in messages. Raises ConfigError,
    StoreError."""
    name = "" if sink_name == FIRST_SINK else sink_name
    if name in {sink.name for sink in config.sinks}:
        words = f"{sink_name} is in the configuration: take its table out first"
        raise ConfigError("NAME", [words])
    if name not in removed_sinks(config):
        raise ConfigError("NAME", [f"nothing is remembered of a sink {sink_name!r}"])
    state_dir = config.agent.state_dir
    lock = take_lock(state_dir)
    if lock is None:
        raise StoreError(state_dir, "the agent runs: stop it first")
    try:
        folder = os.path.join(state_dir, SINKS_FOLDER, name) if name else state_dir
        size = quarantine_files.size(folder)
        if size and not discard_quarantine:
            place = f"{shown_size(size)} that {safe(sink_name)} refused lie in {safe(folder)}/{quarantine_files.FOLDER}"
            words = "`replay` sends them while its table is in the configuration, --discard-quarantine gives them up"
            warn(f"{place}: {words}")
            return EXIT_LEFT
        _forget(folder, is_first=not name)
    except OSError as error:
        words = f"can't be removed: {os_words(error)}"
        raise StoreError(error.filename or state_dir, words) from None
    finally:
        os.close(lock)
    sys.stdout.write(f"{safe(sink_name)} is forgotten\n")
    return 0


def _forget(folder: str, *, is_first: bool) -> None:
    if not is_first:
        shutil.rmtree(folder)
        return
    quarantine = os.path.join(folder, quarantine_files.FOLDER)
    for name in quarantine_files.names(quarantine):
        os.unlink(os.path.join(quarantine, name))
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, f"{ENDS_FILE}{suffix}"))
    # shared with the learner, whose part stays
    with closing(Checkpoints(os.path.join(folder, STATE_FILE))) as checkpoints:
        checkpoints.forget_sink()
