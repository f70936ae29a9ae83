"""What the agent remembers of each Loki that it ships to, as the commands read it, also next to a
running agent."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from logshipper.errors import ConfigError
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.sink_config import SINKS_FOLDER, Server, SinkConfig
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.state.checkpoints import STATE_FILE, State, read_state

SINKS_NOTE = "sinks"  # a note of the agent's own: the names of all that it ships to


class SinkCheckpoints(NamedTuple):
    """learnt, in its state, is the same for all."""

    config: SinkConfig[Server]
    state: State


def read_states(config: AgentConfig) -> list[SinkCheckpoints]:
    """Of all that the configuration names, in its order. Raises StoreError."""
    main = _read(config.agent.state_dir)
    read = [(sink, _read(sink.folder) if sink.name else main) for sink in config.sinks]
    return [SinkCheckpoints(sink, state._replace(learnt=main.learnt)) for sink, state in read]


def agent_notes(config: AgentConfig) -> dict[str, Any]:  # Any: JSON that the agent wrote
    """The agent's own, by name. Raises StoreError."""
    return _read(config.agent.state_dir).notes


def _read(folder: str) -> State:
    path = os.path.join(folder, STATE_FILE)
    return read_state(path) if os.path.exists(path) else State([], {}, {})


def least_positions(states: Iterable[SinkCheckpoints]) -> dict[str, SpoolPosition]:
    """By capture: how far the sink has shipped it that is the furthest behind."""
    return least_of(
        [
            {checkpoint.folder: checkpoint.position for checkpoint in sink.state.checkpoints}
            for sink in states
        ]
    )


def least_of(of_sinks: Sequence[Mapping[str, SpoolPosition]]) -> dict[str, SpoolPosition]:
    """The same. A capture that one of them knows nothing of isn't there."""
    everywhere = set.intersection(*(set(positions) for positions in of_sinks))
    return {folder: min(positions[folder] for positions in of_sinks) for folder in everywhere}


def removed_sinks(config: AgentConfig) -> list[str]:
    """Names of sinks that the configuration has no more, and something is remembered of; "" for the
    one without a name. Raises StoreError."""
    names = set(folders(config.agent.state_dir))
    names |= {""} if _read(config.agent.state_dir).checkpoints else set()
    return sorted(names - {sink.name for sink in config.sinks})


def folders(state_dir: str) -> list[str]:
    """Names of the sinks that have a folder."""
    try:
        with os.scandir(os.path.join(state_dir, SINKS_FOLDER)) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def select_sinks(config: AgentConfig, name: str) -> list[SinkConfig[Server]]:
    """The sink of that name; "" for all. Raises ConfigError where
    there is none."""
    sinks = [sink for sink in config.sinks if name in ("", sink.label)]
    if not sinks:
        names = ", ".join(sink.label for sink in config.sinks)
        raise ConfigError("--sink", [f"{name!r} isn't in the configuration: {names}"])
    return sinks
