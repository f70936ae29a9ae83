"""The agent's configuration: it reports all faults at once, with table, option and fix."""

import dataclasses
import os
import typing
from pathlib import Path
from typing import Any

import pytest

from logshipper.errors import ConfigError
from logshipper_ingest.config import agent_config
from logshipper_ingest.config.agent_config import (
    OTLP,
    SECTIONS,
    AgentConfig,
    listen_address,
    load,
    parse,
    read,
)
from logshipper_ingest.config.otlp_section import OtlpSection
from logshipper_ingest.config.sink_config import is_influxdb
from logshipper_ingest.servers.server_access import ServerAccess, read_secret

LOKI = {"url": "http://127.0.0.1:3100"}
TABLES = {**SECTIONS, OTLP: OtlpSection}


def problems(**tables: Any) -> list[str]:  # Any: TOML, wrong in every way
    return parse({"loki": LOKI, **tables})[1]


def loki_problems(**options: Any) -> list[str]:  # Any: as above
    return problems(loki={**LOKI, **options})


# ---- valid files


def test_a_url_is_all_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[loki]\nurl = "https://loki.example.org/path"\n')
    config = load(str(file))
    assert config.path == str(file)
    assert config.agent.host == os.uname().nodename
    assert config == dataclasses.replace(
        AgentConfig(path=str(file)),
        agent=dataclasses.replace(config.agent, host=os.uname().nodename),
        loki=dataclasses.replace(
            config.loki, access=ServerAccess(url="https://loki.example.org/path")
        ),
    )


def _options(section: Any) -> dict[str, type]:
    """Return a table's options and their types, including those of its server. Any: a dataclass's
    type, which mypy can't tell."""
    types = typing.get_type_hints(section)
    options: dict[str, type] = {}
    for field in dataclasses.fields(section):
        kind = types[field.name]
        options |= _options(kind) if dataclasses.is_dataclass(kind) else {field.name: kind}
    return options


def _values(tmp_path: Path) -> dict[str, Any]:  # Any: TOML
    """Return a value for each option, none of which is the default."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    headers = tmp_path / "headers"
    headers.write_text("api-key: s3cret\n")
    headers.chmod(0o600)
    return {
        "cluster": "c-1.x_y", "host": "node-7", "spool_dir": "/a/spool", "state_dir": "/a/state", "socket": "",
        "max_captures_per_user": 5, "poll_secs": 2, "url": "http://[::1]:9/x", "tenant": "team-a", "tenant_by": "user",
        "username": "ann", "password_file": str(secret), "token_file": str(secret), "ca_file": str(secret),
        "cert_file": str(secret), "key_file": str(secret), "timeout_secs": 3.5, "batch_max_bytes": 20_000,
        "batch_wait_secs": 0, "stream_max_bytes_per_sec": 0, "max_line_bytes": 1000, "max_age_hours": 24,
        "tenant_max_bytes_per_sec": 0, "job_spool_soft_max_bytes": 1_000_000, "job_spool_hard_max_bytes": 9_000_000_000,
        "user_spool_soft_max_bytes": 3_000_000, "user_spool_hard_max_bytes": 0,
        "retry_min_secs": 1.5, "retry_max_secs": 60, "settle_secs": 0, "heartbeat_secs": 30, "quarantine_max_bytes": 0,
        "listen": "", "job_values": False, "expire_secs": 60.5, "max_captures": 7, "max_keys": 8,
        "interval_secs": 20.5, "max_samples": 10, "queue_max_bytes": 200_000, "max_age_secs": 60,
        "max_label_bytes": 64, "client_ca_file": str(secret), "ended_dir": "/a/ended",
        "name": "national", "database": "training", "retention_policy": "year", "org": "lab", "bucket": "b 1",
        "measurement": "training.loss", "measurements": True, "enabled": True, "max_lines_per_sec": 100,
        "unidentified_max_bytes": 5, "headers_file": str(headers), "logs": False, "metrics": False,
        "max_bytes_per_sec": 0,
    }  # fmt: skip


EVERY_OPTION = [
    (table, option)
    for table, section in TABLES.items()
    for option in _options(section)
    if (table, option) != ("influxdb", "tenant")  # which has no tenant
]


@pytest.mark.parametrize(("table", "option"), EVERY_OPTION)
def test_every_option_can_be_set(table: str, option: str, tmp_path: Path) -> None:
    values = _values(tmp_path) | ({"listen": "127.1.2.3:99"} if table == "telegraf" else {})
    together = {"username": "password_file", "password_file": "username", "key_file": "cert_file",
                "client_ca_file": "cert_file", "org": "bucket", "bucket": "org"}  # fmt: skip
    option_values = {name: values[name] for name in (option, together.get(option, option))}
    least = {
        "loki": LOKI,
        "influxdb": LOKI if "bucket" in option_values else {**LOKI, "database": "d"},
        "otlp": LOKI,
    }.get(table, {})
    config, faults = parse({"loki": LOKI, table: {**least, **option_values}})
    assert faults == []
    named: dict[str, Any] = {**config.influxdbs, **config.otlps}  # tables that a file may leave out
    section = named[table] if table in named else getattr(config, table)
    holder = section if hasattr(section, option) else section.access
    default = agent_config.AgentSection() if table == "agent" else None
    assert getattr(holder, option) == values[option]
    assert type(getattr(holder, option)) is _options(TABLES[table])[option]
    assert default is None or getattr(default, option) != values[option]


def test_further_lokis_inherit_rates_and_no_credentials(tmp_path: Path) -> None:
    secret = _values(tmp_path)["token_file"]
    first = {
        **LOKI,
        "token_file": secret,
        "tenant": "site",
        "batch_max_bytes": 20_000,
        "tenant_by": "user",
    }
    config, faults = parse({"loki": {**first, "new": {"url": "http://new", "retry_max_secs": 60}}})
    assert faults == []
    first_sink, new = config.sinks
    assert (first_sink.server, first_sink.is_first, new.is_first) == (config.loki, True, False)
    assert (first_sink.label, first_sink.table) == ("loki", "loki")
    assert first_sink.folder == config.agent.state_dir
    assert (new.label, new.table) == ("new", "loki.new")
    assert new.folder == f"{config.agent.state_dir}/sinks/new"
    access, delivery = new.server.access, new.delivery
    assert (access.url, access.token_file, access.tenant) == ("http://new", "", "nobody!")
    assert (delivery.batch_max_bytes, delivery.retry_max_secs) == (20_000, 60)
    assert delivery.tenant_by == "user"
    assert (new.cluster, new.host) == (config.agent.cluster, config.agent.host)
    assert not config.metrics.job_values

    renamed, faults = parse({"loki": {**LOKI, "name": "new"}})
    assert faults == []
    (sink,) = renamed.sinks
    assert (sink.label, sink.is_first) == ("new", True)
    assert sink.folder == f"{config.agent.state_dir}/sinks/new"


def test_influxdbs_are_sinks_beside_lokis() -> None:
    first, second = (
        {"url": "http://influx", "database": "d"},
        {"url": "http://two", "bucket": "b", "org": "o"},
    )
    config, faults = parse(
        {"loki": {**LOKI, "new": {"url": "http://new"}}, "influxdb": {**first, "two": second}}
    )
    assert faults == []
    sinks = [(sink.label, sink.table, is_influxdb(sink), sink.url) for sink in config.sinks]
    assert sinks[1:] == [
        ("new", "loki.new", False, "http://new"),
        ("influxdb", "influxdb", True, "http://influx"),
        ("two", "influxdb.two", True, "http://two"),
    ]
    assert config.sinks[3].folder == f"{config.agent.state_dir}/sinks/two"
    assert [sink.label for sink in config.lokis] == ["loki", "new"]
    alone, faults = parse({"loki": LOKI, "influxdb": {"two": second}})
    assert (faults, [sink.label for sink in alone.sinks]) == ([], ["loki", "two"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"database": "d"}, "[influxdb] url: is missing"),
        (
            {"url": "http://x"},
            "[influxdb] database: either database (1.x), or org and bucket (2.x)",
        ),
        (
            {"url": "http://x", "database": "d", "bucket": "b", "org": "o"},
            "[influxdb] database: either",
        ),
        ({"url": "http://x", "bucket": "b"}, "[influxdb] bucket: belongs to org"),
        ({"url": "http://x", "database": "d", "org": "o"}, "[influxdb] org: belongs to bucket"),
        (
            {"url": "http://x", "database": "d", "tenant": "t"},
            "[influxdb] tenant: InfluxDB has none",
        ),
        (
            {"url": "http://x", "database": "d", "measurement": "a b"},
            "[influxdb] measurement: a letter",
        ),
        ({"url": "http://x", "database": "d\n"}, "[influxdb] bucket: names have at most"),
        (
            {"url": "http://x", "databse": "d"},
            "[influxdb] databse: there is no such option; did you mean database?",
        ),
        ({"new": {"url": "http://x", "database": "d"}}, "[influxdb.new]: is the name of a Loki"),
        ({"Two": {"url": "http://x", "database": "d"}}, "[influxdb.Two]: a small letter"),
        (
            {f"i{n}": {"url": "http://x", "database": "d"} for n in range(7)},
            "[influxdb]: 9 servers to ship to",
        ),
    ],
)
def test_what_is_wrong_with_an_influxdb_is_named(table: dict[str, Any], message: str) -> None:
    faults = problems(loki={**LOKI, "new": {"url": "http://new"}}, influxdb=table)
    assert any(line.startswith(message) for line in faults), faults


def test_a_tenant_by_user_of_any_loki_hides_job_values() -> None:
    config, faults = parse({"loki": {**LOKI, "new": {"url": "http://new", "tenant_by": "user"}}})
    assert (faults, config.metrics.job_values, config.loki.tenant_by) == ([], False, "")


@pytest.mark.parametrize(
    ("metrics", "is_open"),
    [
        ({}, False),
        ({"listen": "127.3.2.1:9310"}, False),
        ({"listen": "[::1]:9310"}, False),
        ({"listen": "localhost:9310"}, False),
        ({"listen": ""}, False),
        ({"listen": ":9310", "username": "prometheus"}, False),
        ({"listen": ":9310", "cert_file": "/c", "client_ca_file": "/ca"}, False),
        ({"listen": ":9310", "cert_file": "/c"}, True),  # TLS alone identifies no client
        ({"listen": ":9310"}, True),
        ({"listen": "0.0.0.0:9310"}, True),
        ({"listen": "[::]:9310"}, True),
        ({"listen": "10.1.2.3:9310"}, True),
        ({"listen": "127.example.org:9310"}, True),
        ({"listen": "localhost.example.org:9310"}, True),
    ],
)
def test_jobs_are_shown_by_default_where_not_everybody_reads(
    metrics: dict[str, Any], is_open: bool
) -> None:
    def shows_jobs(**more: Any) -> bool:  # Any: TOML
        return parse({"loki": LOKI, "metrics": {**metrics, **more}})[0].metrics.job_values

    assert shows_jobs() is not is_open
    assert (shows_jobs(job_values=True), shows_jobs(job_values=False)) == (True, False)


# ---- faults


@pytest.mark.parametrize(("table", "option"), EVERY_OPTION)
@pytest.mark.parametrize("value", [True, 5, 5.5, "text", [1], {"a": 1}, float("nan"), float("inf")])
def test_every_option_refuses_other_types_and_names_itself(
    table: str, option: str, value: Any
) -> None:
    # Any: TOML
    option_type = _options(TABLES[table])[option]
    fits = type(value) is option_type or (option_type is float and type(value) is int)
    faults = problems(**{table: {**(LOKI if table == "loki" else {}), option: value}})
    if not fits:
        assert any(line.startswith(f"[{table}] {option}: must be ") for line in faults), faults
    elif isinstance(value, float) and not 0 <= value < 1e9:  # nan, inf
        assert any(line.startswith(f"[{table}] {option}:") for line in faults), faults


def test_problems_of_further_lokis_are_named_by_their_tables() -> None:
    tables = {
        "new": {
            "url": "http://new",
            "batch_max_bytes": 1,
            "nam": 1,
            "name": "x",
            "ca_file": "/no/such",
        },
        "none": {},
        "Big": {"url": "http://big"},
        "loki": {"url": "http://other"},
        "same": LOKI,
        "beside": {**LOKI, "tenant": "another"},
        "tenant": {"url": "http://x"},
    }
    faults = loki_problems(max_line_bytes=5, ca_file="/no/such", **tables)
    for place in (
        "[loki] max_line_bytes:", "[loki] ca_file:", "[loki] tenant: must be a string", "[loki.new] batch_max_bytes:",
        "[loki.new] nam: there is no such option", "[loki.new] name: the table's own", "[loki.new] ca_file:",
        "[loki.none] url: is missing", "[loki.Big] name: a small letter", "[loki.loki] name: a small letter",
        "[loki.same]: has url and tenant of [loki]: all would be sent there twice",
    ):  # fmt: skip
        assert sum(line.startswith(place) for line in faults) == 1, (place, faults)
    assert len(faults) == 11, faults
    eight_tables = {f"s{number}": {"url": f"http://s{number}"} for number in range(8)}
    assert loki_problems(**eight_tables) == ["[loki]: 8 tables more than itself, at most 7"]
    assert loki_problems(name="new", new={"url": "http://new"}) == [
        "[loki.new]: is the name of [loki]; another name tells them apart"
    ]


def test_all_problems_are_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        '[agnet]\n[agent]\ncluster = "a b"\npoll_secs = "fast"\nspool_dir = "relative"\nsocet = "/x"\n'
        '[loki]\nurl = "loki:3100"\nbatch_max_bytes = 5\nusername = "ann"\nretry_min_secs = 50\n'
        '[metrics]\nlisten = "9310"\njob_values = 1\n[prometheus]\nurl = "ftp://x"\n'
    )
    with pytest.raises(ConfigError) as error:
        load(str(file))
    faults = error.value.problems
    for place in (
        "[agnet]: there is no such table; did you mean agent?", "[agent] cluster:",
        "[agent] poll_secs: must be a number",
        "[agent] spool_dir:", "[agent] socet: there is no such option; did you mean socket?", "[loki] url:",
        "[loki] batch_max_bytes:", "[loki] username and password_file", "[loki] retry_min_secs:", "[metrics] listen:",
        "[metrics] job_values: must be true or false", "[prometheus] url:",
    ):  # fmt: skip
        assert sum(line.startswith(place) for line in faults) == 1, place
    assert len(faults) == 12
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ("agent", {"cluster": ""}),
        ("agent", {"cluster": "a/b"}),
        ("agent", {"cluster": "x" * 65}),
        ("agent", {"cluster": "a\n"}),
        ("agent", {"host": 'a"b'}),
        ("agent", {"host": "\u00e9"}),
        ("agent", {"spool_dir": ""}),
        ("agent", {"state_dir": "~/x"}),
        ("agent", {"spool_dir": "/a/b", "state_dir": "/a/./b/"}),
        ("agent", {"socket": "agent.sock"}),
        ("agent", {"socket": "/" + "x" * 107}),
        ("agent", {"socket": "/" + "\u00e9" * 54}),
        ("agent", {"max_captures_per_user": 0}),
        ("agent", {"poll_secs": 0}),
        ("agent", {"poll_secs": float("nan")}),
        ("telegraf", {"listen": "0.0.0.0:8092"}),
        ("telegraf", {"listen": "127.0.0.1:99999"}),
        ("telegraf", {"listen": ""}),
        ("telegraf", {"socket": "telegraf.sock"}),
        ("telegraf", {"max_lines_per_sec": 0}),
        ("telegraf", {"unidentified_max_bytes": -1}),
        ("loki", {"url": ""}),
        ("loki", {"url": "http://"}),
        ("loki", {"url": "http://x:99999"}),
        ("loki", {"url": "http://[::1"}),
        ("loki", {"url": "http://ann:pw@x"}),
        ("loki", {"url": "http://x/?a=b"}),
        ("loki", {"tenant": "a/b"}),
        ("loki", {"tenant": "a\r\nX: y"}),
        ("loki", {"tenant_by": "project"}),
        ("loki", {"timeout_secs": 0}),
        ("loki", {"timeout_secs": float("inf")}),
        ("loki", {"batch_max_bytes": 10_000_001}),
        ("loki", {"batch_wait_secs": -1}),
        ("loki", {"stream_max_bytes_per_sec": -1}),
        ("loki", {"tenant_max_bytes_per_sec": 99_999}),
        ("agent", {"job_spool_soft_max_bytes": 999_999}),
        ("agent", {"user_spool_hard_max_bytes": -1}),
        ("loki", {"max_line_bytes": 999}),
        ("loki", {"max_line_bytes": 1 << 40}),
        ("loki", {"max_age_hours": 0}),
        ("loki", {"retry_min_secs": 0}),
        ("loki", {"retry_min_secs": 2, "retry_max_secs": 1}),
        ("loki", {"retry_max_secs": 1e9}),
        ("loki", {"settle_secs": -1}),
        ("loki", {"heartbeat_secs": 1}),
        ("loki", {"quarantine_max_bytes": -1}),
        ("metrics", {"listen": "nowhere"}),
        ("metrics", {"listen": "127.0.0.1:65536"}),
        ("metrics", {"listen": "::1:9310"}),
        ("metrics", {"listen": "127.0.0.1:9310\n"}),
        ("metrics", {"expire_secs": -1}),
        ("metrics", {"max_captures": 0}),
        ("metrics", {"max_keys": 257}),
        ("metrics", {"max_label_bytes": 15}),
        ("prometheus", {"url": "x"}),
    ],
)
def test_values_out_of_range_are_one_problem_that_names_the_option(
    table: str, options: dict[str, Any]
) -> None:
    # Any: TOML
    (line,) = problems(**{table: {**(LOKI if table == "loki" else {}), **options}})
    assert line.startswith(f"[{table}] ")
    assert any(option in line for option in options)
    assert "\n" not in line


@pytest.mark.parametrize("value", [5, "text", [], True])
def test_a_table_that_is_none_is_said(value: object) -> None:
    faults = problems(metrics=value)
    assert faults == ["[metrics]: must be a table, with a line for each option"]


def test_the_parts_of_a_table_are_no_options() -> None:
    assert any(
        "[loki] access: there is no such option" in line
        for line in loki_problems(access={"url": "x"})
    )


def test_an_option_of_another_table_is_unknown_here() -> None:
    assert any(
        "[metrics] url: there is no such option" in line
        for line in problems(metrics={"url": "http://x"})
    )


@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_of_any_length_are_problems_and_no_faults(digits: int, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'[loki]\nurl = "http://x"\nmax_age_hours = {"9" * digits}\n')
    with pytest.raises(ConfigError):
        load(str(file))


# ---- files


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[loki\n", "isn't TOML"),
        (b"\xff\xfe", "isn't TOML"),
        (b"a = 1\na = 2\n", "isn't TOML"),
        (b"#" * (2 << 20), "is over 1 MiB"),
    ],
)
def test_files_that_are_no_toml_are_said(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        read(str(file))


def test_what_windows_editors_write_is_read(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_bytes(b'\xef\xbb\xbf[loki]\r\nurl = "http://loki.example.org:3100"\r\n')
    assert load(str(file)).loki.access.url == "http://loki.example.org:3100"
    file.write_text("[loki]\nurl = http://loki.example.org:3100\n")
    with pytest.raises(ConfigError, match=r"at line 2, column 7\): texts stand in quotes"):
        load(str(file))


def test_a_missing_file_and_a_folder_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: no such file"):
        load(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match="can't be read: is a directory"):
        load(str(tmp_path))


@pytest.mark.parametrize("option", ["password_file", "token_file", "key_file"])
@pytest.mark.parametrize(
    ("mode", "fine"), [(0o600, True), (0o640, True), (0o644, False), (0o602, False), (0o601, False)]
)
def test_secrets_must_not_be_open_to_everybody(
    option: str, mode: int, fine: bool, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("x\n")
    file.chmod(mode)
    companions = {"password_file": {"username": "ann"}, "key_file": {"cert_file": str(file)}}.get(
        option, {}
    )
    faults = loki_problems(**{option: str(file)}, **companions)
    assert faults == (
        [] if fine else [f"[loki] {option}: {file}: everybody may read it; `chmod o= {file}`"]
    )


@pytest.mark.parametrize("option", ["ca_file", "cert_file"])
def test_certificates_may_be_open(option: str, tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("x\n")
    file.chmod(0o644)
    assert loki_problems(**{option: str(file)}) == []


@pytest.mark.parametrize(
    "option", ["password_file", "token_file", "ca_file", "cert_file", "key_file"]
)
@pytest.mark.parametrize("path", ["relative", "/no/such/file", "/", "/a\0b"])
def test_files_that_cannot_be_read_are_named(option: str, path: str) -> None:
    companions = {"password_file": {"username": "ann"}, "key_file": {"cert_file": "/dev/null"}}.get(
        option, {}
    )
    (line,) = loki_problems(**{option: path}, **companions)
    assert line.startswith(f"[loki] {option}: ")


def test_credentials_that_exclude_each_other_are_said(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x\n")
    file.chmod(0o600)
    path = str(file)
    assert loki_problems(password_file=path) == [
        "[loki] username and password_file belong together"
    ]
    assert loki_problems(key_file=path) == ["[loki] key_file: needs a cert_file"]
    faults = loki_problems(username="ann", password_file=path, token_file=path)
    assert faults == ["[loki] token_file: not together with username and password_file"]


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"x" * 70_000, b"a\0b"])
def test_a_secret_that_is_none_is_said_and_not_shown(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="holds no secret") as error:
        read_secret(str(file))
    assert "two" not in str(error.value)


# ---- addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9310", ("127.0.0.1", 9310)),
        ("[::1]:0", ("::1", 0)),
        (":9310", ("", 9310)),
        ("node-1.example.org:65535", ("node-1.example.org", 65535)),
        ("1:65536", None),
        ("a:", None),
        ("a b:1", None),
        ("http://a:1", None),
        ("a:\u0661", None),
        ("a:1\n", None),
    ],
)
def test_listen_addresses(text: str, address: tuple[str, int] | None) -> None:
    assert listen_address(text) == address
