"""`logshipper-grafana apply`: data sources."""

from logshipper_grafana.tool.content import is_prometheus, wanted_data_sources
from tests.grafana.commands.conftest import (
    ADDRESSES,
    LOKI,
    PAGES,
    PROMETHEUS,
    VERSIONS,
    Run,
    line_about,
)
from tests.grafana.tools.fake_grafana import EDITOR, FakeGrafana


def test_what_somebody_set_in_a_data_source_stays(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    source = grafana.sources["logshipper-prometheus"]
    source["jsonData"] |= {"timeInterval": "60s", "manageAlerts": False}
    source["secureJsonFields"] = {"basicAuthPassword": True}
    code, out, _ = run()
    assert code == 0
    line = line_about(out, "data source logshipper-prometheus")
    assert line.startswith(
        "kept      data source logshipper-prometheus: set otherwise there: timeInterval 60s"
    )
    assert run("--prometheus-url", "http://other:9090")[0] == 0
    assert grafana.sources["logshipper-prometheus"]["url"] == "http://other:9090"
    assert grafana.sources["logshipper-prometheus"]["jsonData"]["timeInterval"] == "60s"
    assert run("--force")[0] == 0
    settings = grafana.sources["logshipper-prometheus"]["jsonData"]
    (template,) = filter(is_prometheus, wanted_data_sources())
    assert settings == template["jsonData"] | {"manageAlerts": False}
    (put,) = (request.document for request in grafana.requests[-20:] if request.method == "PUT")
    assert "secureJsonFields" not in put


def test_derived_fields_are_added_to_those_that_are_there(grafana: FakeGrafana, run: Run) -> None:
    trace = {"name": "trace", "matcherRegex": "trace=(.*)"}
    grafana.add_source(
        "logshipper-loki", "loki", LOKI, jsonData={"derivedFields": [trace], "maxLines": 100}
    )
    code, out, _ = run("--prometheus-url", PROMETHEUS, "--dry-run")
    assert code == 3
    assert "(code)" in out
    assert run("--prometheus-url", PROMETHEUS)[0] == 0
    settings = grafana.sources["logshipper-loki"]["jsonData"]
    assert [field["name"] for field in settings["derivedFields"]] == ["trace", "job"]
    assert settings["maxLines"] == 100
    assert line_about(run()[1], "data source logshipper-loki").startswith("kept")
    settings["derivedFields"][1]["url"] = "/d/mine"
    assert "derivedFields job, maxLines 100" in line_about(
        run()[1], "data source logshipper-loki"
    ).replace("maxLines 100, derivedFields job", "derivedFields job, maxLines 100")
    run("--force")
    settings = grafana.sources["logshipper-loki"]["jsonData"]
    assert [
        field["url"] if field["name"] == "job" else "" for field in settings["derivedFields"]
    ] == ["", "/d/logshipper-job?var-job=${__value.raw}"]


def test_a_data_source_of_a_file(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)
    grafana.sources["logshipper-loki"]["readOnly"] = True
    assert run()[0] == 0, "as it is, it is right"
    code, out, _ = run("--loki-url", "http://other:3100")
    assert code == 1
    assert "comes from a file on Grafana's machine" in line_about(
        out, "data source logshipper-loki"
    )


def test_data_sources_without_an_address(grafana: FakeGrafana, run: Run) -> None:
    grafana.add_source("theirs", "loki", LOKI, name="Logs")
    code, out, _ = run()
    assert code == 1
    assert "the pages take another one of its type: Logs" in line_about(
        out, "data source logshipper-loki"
    )
    assert "give --prometheus-url URL" in line_about(out, "data source logshipper-prometheus")
    assert "--loki-url URL makes it" in line_about(out, "data source logshipper-loki-values")
    assert sorted(grafana.versions) == PAGES


def test_a_data_source_whose_name_is_taken_gets_another(grafana: FakeGrafana, run: Run) -> None:
    grafana.add_source("theirs", "loki", LOKI, name="Loki")
    assert run(*ADDRESSES)[0] == 0
    assert grafana.sources["logshipper-loki"]["name"] == "Loki (logshipper)"
    assert grafana.sources["theirs"]["name"] == "Loki"


def test_a_data_source_that_is_changed_in_between(grafana: FakeGrafana, run: Run) -> None:
    run(*ADDRESSES)

    def meddle(method: str, path: str) -> None:
        if method == "PUT":
            grafana.sources["logshipper-loki"]["version"] += 1

    grafana.meddle = meddle
    code, out, _ = run("--loki-url", "http://other:3100")
    assert code == 1
    assert "HTTP 409" in line_about(out, "data source logshipper-loki")
    assert "run this again" in line_about(out, "data source logshipper-loki")


@VERSIONS
def test_a_uid_that_belongs_to_something_else(grafana: FakeGrafana, run: Run) -> None:
    grafana.add_source("logshipper-loki", "elasticsearch", LOKI)
    code, out, _ = run(*ADDRESSES)
    assert code == 1
    assert "its type is elasticsearch" in line_about(out, "data source logshipper-loki")
    assert grafana.sources["logshipper-loki"]["type"] == "elasticsearch"


def test_an_editors_token_is_enough_where_data_sources_are_there(
    grafana: FakeGrafana, run: Run
) -> None:
    grafana.reads_for_all = False
    code, out, _ = run(token=EDITOR)
    assert code == 0
    assert "the token may not read data sources" in line_about(out, "data source logshipper-loki")
    assert sorted(grafana.versions) == PAGES
    grafana.reads_for_all = True
    code, out, _ = run(*ADDRESSES, token=EDITOR)
    assert code == 1
    assert "role Admin for data sources" in line_about(out, "data source logshipper-loki")
