"""The resolver of variables behaves like Grafana."""

import pytest

from tests.grafana.tools.interpolation import Text, Variable, escaped_regex, references, replaced
from tests.grafana.tools.pages import in_order
from tests.grafana.tools.sources import LokiSource, PrometheusSource, Range
from tests.grafana.tools.variable_options import custom, filtered
from tests.grafana.tools.variable_options import in_order as sorted_options

ALL = ["$__all"]


def variable(value: Text, text: Text = "", **more: object) -> dict[str, Variable]:
    return {"v": Variable("v", "query", text or value, value, **more)}  # type: ignore[arg-type]  # fields of Variable


@pytest.mark.parametrize(
    ("form", "value", "output"),
    [
        ("raw", "a/b.c", "a/b.c"),
        ("raw", ["a", "b"], "a,b"),
        ("regex", "a/b.c[1]", r"a\/b\.c\[1\]"),
        ("regex", ["a.", "b"], r"(a\.|b)"),
        ("regex", ["a."], r"a\."),
        ("pipe", "a|b", "a|b"),
        ("pipe", ["a", "b"], "a|b"),
        ("pipe", [], ""),
        ("glob", ["a", "b"], "{a,b}"),
        ("glob", ["a"], "a"),
        ("doublequote", ['a"', "b"], r'"a\"","b"'),
        ("singlequote", ["a'"], r"'a\''"),
        ("csv", ["a", "b"], "a,b"),
        ("json", ["a", "ü"], '["a", "ü"]'),
        ("percentencode", "a b/ü'", "a%20b%2F%C3%BC%27"),
        ("percentencode", ["a", "b"], "%7Ba%2Cb%7D"),
        ("queryparam", ["a", "b c"], "var-v=a&var-v=b%20c"),
        ("text", "a", "a"),
    ],
)
def test_formats(form: str, value: Text, output: str) -> None:
    assert replaced(f"<${{v:{form}}}>", variable(value)) == f"<{output}>"


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(KeyError):
        replaced("${v:upper}", variable("a"))


def test_ways_to_name_a_variable() -> None:
    assert (
        replaced("$v ${v} [[v]] [[v:raw]] $vv ${w} $1 {{$lx}} $", variable("a"))
        == "a a a a $vv ${w} $1 {{$lx}} $"
    )
    assert references("$v ${w:raw} [[x]] $1") == {"v", "w", "x", "1"}


def test_a_text_is_what_is_shown() -> None:
    assert replaced("${v:text}|${v:raw}", variable("1", "one")) == "one|1"
    assert replaced("${v:text}", variable(["1", "2"], ["one", "two"])) == "one + two"


def test_all_is_every_option_or_what_stands_for_it() -> None:
    options = [("one", "1"), ("two", "2.")]
    every = variable(ALL, ["All"], options=options, multi=True, include_all=True)
    assert (
        replaced("${v:pipe} ${v:regex} ${v:text} ${v:queryparam}", every)
        == r"1|2. (1|2\.) All var-v=%24__all"
    )
    custom_all = variable(
        ALL, ["All"], options=options, multi=True, include_all=True, all_value=".*"
    )
    assert replaced("${v:pipe} ${v:regex} ${v:text}", custom_all) == ".* .* All"
    assert every["v"].selected() == options
    assert variable(["2."], options=options)["v"].selected() == [("two", "2.")]


def test_a_repeated_panel_has_its_own_value() -> None:
    selection = variable(["1", "2"], ["one", "two"])
    assert replaced("${v:raw} ${v:text} $v", selection, {"v": ("two", "2")}) == "2 two 2"
    assert replaced("${w:raw}", selection, {"w": ("two", "2")}) == "2"


def test_data_sources_escape_what_names_no_format() -> None:
    several = variable(["a.b", "c"], multi=True)
    assert replaced("$v", several, plain=PrometheusSource.plain) == r"(a\\.b|c)"
    assert replaced("$v", several, plain=LokiSource.plain) == r"a\\.b|c"
    assert replaced("$v", variable("a.b'"), plain=PrometheusSource.plain) == r"a.b\\'"
    assert replaced("$v", variable("a.b"), plain=LokiSource.plain) == "a.b"
    assert replaced("${v:raw}", several, plain=LokiSource.plain) == "a.b,c"


def test_times() -> None:
    at = {"__from": Variable("__from", "built-in", "1500", "1500")}
    assert replaced("${__from} ${__from:date:seconds} $__from", at) == "1500 2 1500"
    when = Range(1_000_000, 4_600_400)
    built_in = when.built_in(when.interval_ms(1))
    assert built_in["__range"] == "3600s"
    assert built_in["__range_ms"] == "3600400"
    assert built_in["__interval"] == "5s"
    assert when.built_in(when.interval_ms(15_000))["__interval"] == "15s"
    assert when.built_in(200)["__interval"] == "200ms"


def test_every_special_character_is_escaped() -> None:
    assert escaped_regex(r"\^$*+?.()|[]{}/") == r"\\\^\$\*\+\?\.\(\)\|\[\]\{\}\/"
    assert escaped_regex("-ü_ 'a\"") == "-ü_ 'a\""


# ---- options

SERIES = ['{key="loss",path="loss"} 1 1000', '{key="a,b",path="a"]["b"} 2 1000', "{} 3 1000"]


def test_a_regular_expression_with_groups() -> None:
    pattern = r'/key="(?<text>.*?)",path="(?<value>.*)"\} /'
    assert filtered(SERIES, pattern) == [("loss", "loss"), ("a,b", 'a"]["b')]
    assert filtered(SERIES, '/key="(?<value>[^"]*)"/') == [("loss", "loss"), ("a,b", "a,b")]
    assert filtered(SERIES, '/key="([^"]*)"/') == [("loss", "loss"), ("a,b", "a,b")]
    assert filtered(SERIES, "/LOSS/i") == [(SERIES[0], SERIES[0])]
    assert filtered(SERIES, "") == [(series, series) for series in SERIES]


def test_an_empty_group_is_an_empty_option_by_the_first_group() -> None:
    assert filtered(['{dec=""} 1'], '/dec="(?<value>[^"]*)"/') == [("", "")]


def test_options_of_one_value_are_one() -> None:
    assert filtered(["a1", "b1", "c2"], r"/(?<text>\w)(?<value>\d)/") == [("a", "1"), ("c", "2")]


def test_all_matches_are_options_with_g() -> None:
    assert filtered(["a1 b2"], r"/(\w)\d/g") == [("a", "a"), ("b", "b")]


def test_orders() -> None:
    options = [(text, text) for text in ("b10", "B2", "a1", "c")]
    orders = {number: [text for text, _ in sorted_options(options, number)] for number in range(7)}
    assert orders == {
        0: ["b10", "B2", "a1", "c"],
        1: ["B2", "a1", "b10", "c"],
        2: ["c", "b10", "a1", "B2"],
        3: ["c", "a1", "B2", "b10"],
        4: ["b10", "B2", "a1", "c"],
        5: ["a1", "b10", "B2", "c"],
        6: ["c", "B2", "b10", "a1"],
    }


def test_custom_options() -> None:
    assert custom(r"a, one : 1, c\,d") == [("a", "a"), ("one", "1"), ("c,d", "c,d")]


# ---- dependencies


def test_variables_come_after_what_they_need() -> None:
    models: list[dict[str, object]] = [
        {"name": "x", "query": "f($sel)"},
        {"name": "sel", "query": {"query": "g(${job:raw})"}, "datasource": {"uid": "${prom}"}},
        {"name": "job", "query": ""},
        {"name": "prom", "query": "prometheus"},
    ]
    assert [model["name"] for model in in_order(models)] == ["job", "prom", "sel", "x"]


def test_variables_that_wait_for_each_other_are_an_error() -> None:
    with pytest.raises(AssertionError, match="wait for each other"):
        list(in_order([{"name": "a", "query": "$b"}, {"name": "b", "query": "$a"}]))
