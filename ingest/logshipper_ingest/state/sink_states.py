"""State files of all sinks, for commands, even while an agent runs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from logshipper.errors import ConfigError
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.sink_config import SINKS_FOLDER, Server, SinkConfig
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.state.checkpoints import STATE_FILE, State, read_state

SINKS_NOTE = "sinks"  # the agent's note with the names of its sinks


class SinkCheckpoints(NamedTuple):
    """A sink and its state; `accounts` is the same for all sinks."""

    config: SinkConfig[Server]
    state: State


def read_states(config: AgentConfig) -> list[SinkCheckpoints]:
    """Read the state of each configured sink, in order. Raises StoreError."""
    main = _read(config.agent.state_dir)
    read = [(sink, _read(sink.folder) if sink.name else main) for sink in config.sinks]
    return [SinkCheckpoints(sink, state._replace(accounts=main.accounts)) for sink, state in read]


def agent_notes(config: AgentConfig) -> dict[str, Any]:  # Any: JSON that the agent wrote
    """Return the agent's notes by name. Raises StoreError."""
    return _read(config.agent.state_dir).notes


def _read(folder: str) -> State:
    path = os.path.join(folder, STATE_FILE)
    return read_state(path) if os.path.exists(path) else State([], {}, {})


def least_positions(states: Iterable[SinkCheckpoints]) -> dict[str, SpoolPosition]:
    """Return, by capture, the position of the sink that is furthest behind."""
    return least_of(
        [
            {checkpoint.folder: checkpoint.position for checkpoint in sink.state.checkpoints}
            for sink in states
        ]
    )


def least_of(of_sinks: Sequence[Mapping[str, SpoolPosition]]) -> dict[str, SpoolPosition]:
    """Return the least position of each capture that all sinks know."""
    everywhere = set.intersection(*(set(positions) for positions in of_sinks))
    return {folder: min(positions[folder] for positions in of_sinks) for folder in everywhere}


def removed_sinks(config: AgentConfig) -> list[str]:
    """Return the names of sinks with a state but no configuration; "" for the unnamed one. Raises
    StoreError."""
    names = set(folders(config.agent.state_dir))
    names |= {""} if _read(config.agent.state_dir).checkpoints else set()
    return sorted(names - {sink.name for sink in config.sinks})


def folders(state_dir: str) -> list[str]:
    """Return the names of sinks with a folder."""
    try:
        with os.scandir(os.path.join(state_dir, SINKS_FOLDER)) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def select_sinks(config: AgentConfig, name: str) -> list[SinkConfig[Server]]:
    """Return the sink of that name, or all for "". Raises ConfigError if there is none."""
    sinks = [sink for sink in config.sinks if name in ("", sink.label)]
    if not sinks:
        names = ", ".join(sink.label for sink in config.sinks)
        raise ConfigError("--sink", [f"{name!r} isn't in the configuration: {names}"])
    return sinks
