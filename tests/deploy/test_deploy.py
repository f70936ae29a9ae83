"""deploy/ agrees with the program: the documented configuration, and the unit."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from logshipper_ingest.cli import build_parser
from logshipper_ingest.config.agent_config import OTLP, SECTIONS, AgentConfig, read
from logshipper_ingest.config.otlp_section import OtlpSection
from logshipper_ingest.config.toml_section import read_toml
from tests.tools.sources import ROOT

DEPLOY = ROOT / "deploy"
EXAMPLE = DEPLOY / "agent.toml"
TABLES = {**SECTIONS, OTLP: OtlpSection}


def options(section: type) -> set[str]:
    """Return the names of a section's options, including those of its server's access."""
    names: set[str] = set()
    for field in dataclasses.fields(section):
        default = (
            field.default_factory() if field.default_factory is not dataclasses.MISSING else None
        )
        names |= options(type(default)) if dataclasses.is_dataclass(default) else {field.name}
    return names


def test_the_example_is_the_defaults() -> None:
    """Only mandatory options differ."""
    config, problems = read(str(EXAMPLE))
    assert [problem.partition(":")[0] for problem in problems] == ["[loki] url"]
    defaults = dataclasses.replace(
        config, path="", agent=dataclasses.replace(config.agent, host="")
    )
    assert defaults == AgentConfig()


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_example_has_every_option_with_a_word_on_it(name: str) -> None:
    table = read_toml(str(EXAMPLE))[name]
    lines = EXAMPLE.read_text().partition(f"[{name}]")[2].partition("\n[")[0].splitlines()[1:]
    depending = {
        match[1] for line in lines if (match := re.match(r"# (\w+) = \w+ +# ", line))
    }  # with defaults that depend on other options
    assert set(table) | depending == options(TABLES[name])
    if name != "prometheus":  # it shares the options of [loki]
        bare = [line for line in lines if re.match(r"\w+ = ", line) and "#" not in line]
        assert bare == []


def test_the_unit_calls_what_there_is() -> None:
    text = (DEPLOY / "systemd" / "logshipper-agent.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    program, *words = shlex.split(command)
    assert program.endswith("/logshipper-agent")
    assert build_parser().parse_args(words).config == "/etc/logshipper/agent.toml"
    assert f"RuntimeDirectory={Path(AgentConfig().agent.socket).parent.name}" in text.splitlines()
