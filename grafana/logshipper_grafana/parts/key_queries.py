"""Queries about keys: the choice of X, thinning, and the keys to draw. Loki reads some of them, too."""

from logshipper_grafana.parts.key_names import places, with_family
from logshipper_grafana.parts.queries import MAX_ENTRIES, constant, job_max, or_else
from logshipper_grafana.parts.records import DENSE, RECORD_FIELD
from logshipper_ingest.model.ranks import MAX_POINTS, MAX_RULE, RULE_UNIT

FIRST_RECORDS = 99  # of each set of keys, kept by `thinned`
MAX_GRAPHS = 24  # of a page: browsers draw more too slowly
MAX_DIGITS = 6  # of a number for thinning: 4.5 billion records


def thinned(digits: str) -> str:
    """Keep records whose number ends in the digits, and the first hundred of each set of keys."""
    return f' | n=~"[0-9]{{1,2}}|[0-9]*{digits}"'


def x_choices() -> str:
    """`auto`, and each key as `choice`."""
    ranks = job_max("logshipper_x_rank")
    return f"group by(choice)({ranks}) or on(choice) {constant('auto')}"


def x_key(choice: str) -> str:
    """Return the key of X, with its rule and a fraction.

    RECORD_FIELD replaces it: -1 for a job with a single key, which would have nothing to draw, 0
    without a known key.
    """
    count = f"count(group by(key)({job_max('logshipper_key')}))"
    ranks = job_max("logshipper_x_rank", f'choice="{choice}"')
    ranks = f"bottomk(1, max by(key)({ranks})) / {RULE_UNIT}"
    only = f'label_replace(-1 * ({count} == 1), "key", "{RECORD_FIELD}", "", "")'
    return or_else(f"{ranks} and on() ({count} > 1) or on() {only}", "key", RECORD_FIELD)


# The rules in words (model.x_axis), by a rank's rule; RULE_BY_HAND for a user's choice.
RULES = {
    1: "chosen by its name",
    2: "chosen by its name",
    3: "integers that never fall",
    4: "numbers that never fall",
    5: "integers that only rise or only fall",
    6: "numbers that only rise or only fall",
    7: "the first key with numbers",
}
RULE_BY_HAND = "chosen by hand"
NO_RULE = "no key with numbers is known"
NO_SHARED_KEY = "no key with numbers is shared"
ONLY_KEY = "only one key has numbers"


def rule_words(*, otherwise: str = NO_RULE) -> str:
    """Return the rule as the label `words`, from the variables `xsel` and `x`, whose text is the
    integer part of x_key.

    otherwise: the words without a key. Loki reads it, too.
    """
    series = 'label_replace(vector(0), "rule", "${xsel:raw}/${x:text}/${x:raw}", "", "")'
    words = {".*": RULE_BY_HAND, "auto/.*": otherwise}
    for rule, phrase in RULES.items():
        words |= {f"auto/({rule}|{rule + MAX_RULE})/.*": phrase}
    words |= {f".*/0/{RECORD_FIELD}": otherwise, f".*/-1/{RECORD_FIELD}": ONLY_KEY}
    for pattern, phrase in words.items():
        series = f'label_replace({series}, "words", "{phrase}", "rule", "{pattern}")'
    return series


def record_count() -> str:
    """Return the job's number of records on the node with the most; -1 for an unknown job."""
    known = f"0 * group({job_max('logshipper_job_info')})"
    return f"max({job_max('logshipper_records')}) or on() {known} or on() (vector(0) - 1)"


_COUNT = "(${record_count:raw} * vector(1))"  # of record_count


def thinning() -> str:
    """The digits to thin by, as `dec`, of the variable record_count. Loki reads it, too."""
    return " or on() ".join(
        _if_more_records(MAX_POINTS * 10 ** (digits - 1), "dec", "0" * digits)
        for digits in range(MAX_DIGITS, 0, -1)
    )


def count_words() -> str:
    """Return the omission of `thinning`, as `thinning_words` does. Loki reads it, too."""
    words = [
        _if_more_records(MAX_POINTS * 10 ** (digits - 1), "words", one_of(digits))
        for digits in range(MAX_DIGITS, 0, -1)
    ]
    any_records = _if_more_records(-1, "words", " ")
    return or_else(" or on() ".join([*words, any_records]), "words", NEWEST_ONLY)


def _if_more_records(number: int, label: str, value: str) -> str:
    """Return a value if there are more records.

    An empty comparison is a series for VictoriaMetrics' `or`, which fills its gaps from the other
    side: `and` makes it empty.
    """
    return f'label_replace({_COUNT} > {number} and on() vector(0), "{label}", "{value}", "", "")'


def one_of(digits: int, at_least: str = "") -> str:
    return f", {at_least}1 of {10**digits:,} records"


NEWEST_ONLY = f", the newest {MAX_ENTRIES:,} records"


def thinning_together(counts: str, captures: str, *, by: str = "") -> str:
    """Return the digits for thinning, as `dec`, so that the rest of several jobs fits into one
    answer, besides the first hundred of each capture.

    The most of all keys, or by key. counts: series of logshipper_key; captures: of
    logshipper_metadata_value.
    """
    first = f"{FIRST_RECORDS} * scalar(count(group by(job_id, attempt, step, task)({captures})))"
    room = f"clamp_min(vector({MAX_ENTRIES} - {first}), {FIRST_RECORDS})"
    ratios = f"sum by(key)(max by(key, job_id, instance, job)({counts})) / on() group_left {room}"
    digits = f"clamp_min(ceil(log10({ratios if by else f'max({ratios})'})), 0)"
    series = f'count_values{f" by({by})" if by else ""}("digits", {digits})'
    for number in range(1, MAX_DIGITS + 1):
        series = f'label_replace({series}, "dec", "{"0" * number}", "digits", "{number}")'
    return series


def thinning_words(metric: str) -> str:
    """Return the least omission as the label `words`, for the end of a title: ", 1 of 10 records"
    and so on; a blank without one.

    metric: series with `dec`.
    """
    words = f'label_replace(topk(1, max by(dec)({metric})), "words", " ", "", "")'
    for digits in range(1, MAX_DIGITS + 1):
        phrase = one_of(digits, "at least ")
        words = f'label_replace({words}, "words", "{phrase}", "dec", "{"0" * digits}")'
    return or_else(f"group by(words)({words})", "words", NEWEST_ONLY)


# `${y:raw}` in a query holds the digits that thin a key's graph, the end of that filter, a filter
# that always holds and names the key, a label for the key's own X, and one with DENSE for many
# points. One variable repeats the panels, and each key has its own digits and X.
NO_GRAPH = "No key has two numbers: print them as JSON objects, one in a line"
FOUND = "Found in the output"  # the heading of series
OF_SERIES = "key=~`.+ [(]auto[)]`"  # by AUTO_MARK
NO_CONSTANT = "constant!=`true`"  # of logshipper_key: equal numbers are no graph
OWN_X = "lsown"
DENSE_MARK = "lsdense"
PICKED = f'", lskey!="{{key}}" | label_format {OWN_X}="{{own_x}}'
PICKED_END = f'", {DENSE_MARK}="{{dense}}'
PICKED_PATTERN = (
    f'/[{{,]picked="(?<value>0*", lskey!="(?<text>[^"]*)"[^"]*"[^"]*", {DENSE_MARK}="[^"]*)"/'
)
DENSE_SERIES = f"{{{{$ls = print $ls .{DENSE_MARK}}}}}"  # for a template that has names in $ls
MANY_POINTS = 60  # of a graph: more of them hide its line


def keys_to_draw(metric: str, *, counts: str = "", placed: str = "") -> str:
    """Return keys as `picked`: digits, PICKED and PICKED_END.

    metric: logshipper_key's series, whose largest is the newest, or others with `key` and `dec`;
    counts: logshipper_key's then; placed: places of keys, which then share a graph with their family.
    """
    largest = f"topk by(key)(1, max by(dec, key, x)({metric}))"
    graph, by = "key", "key"
    if placed:
        graph, by = "family", "family, x"
        largest = f"topk by({by})(1, {with_family(f'max by(dec, key, x)({metric})')})"
    many = f"{largest} and on(key) max by(key)({counts or metric}) > {MANY_POINTS}"
    dense = f'label_replace({many}, "lsdense", "{DENSE}", "", "")'
    keys = f"{dense} or on({by}) {largest}"
    if placed:
        keys = f"({keys}) * 0 + on(family) group_left() min by(family)({with_family(placed)})"
    before_key, after_key, _ = PICKED.replace("{own_x}", "{key}").split("{key}")
    before_dense, _ = PICKED_END.split("{dense}")
    for label, text in (("lsfilter", before_key), ("lslabel", after_key), ("lsmark", before_dense)):
        keys = f'label_replace({keys}, "{label}", \'{text}\', "", "")'
    parts = ("dec", "lsfilter", graph, "lslabel", "x", "lsmark", "lsdense")
    joined = ", ".join(f'"{part}"' for part in parts)
    return f'max by(picked)(label_join({keys}, "picked", "", {joined}))'


def graphs_and_found(keys: str, ranks: str, x_of: str, of_series: str) -> tuple[str, str]:
    """Return the places of the first MAX_GRAPHS keys for the first graphs, and for FOUND: series, if
    there are other keys. The X of others has no graph.

    ranks: of logshipper_x_rank; x_of: the keys whose label `x` counts. Loki reads it, too.
    """
    x_keys = f"label_replace(max by (x)({x_of}), `key`, `$1`, `x`, `(.+)`)"
    first = f"bottomk({MAX_GRAPHS}, {places(ranks)} and on(key) ({keys}) unless on(key) {x_keys})"
    others = f"(({keys}) unless on(key) ({of_series}))"
    found = f"on(key) (({of_series}) and on() {others})"
    return f"{first} unless {found}", f"{first} and {found}"


def or_no_graph(keys: str, title: str = NO_GRAPH) -> str:
    """Return `keys_to_draw`, or the title of a panel without a graph."""
    none = PICKED.format(key=title, own_x="") + PICKED_END.format(dense="")
    return f'sort({keys} or on() label_replace(vector(0), "picked", \'{none}\', "", ""))'


def more_keys_words(series: str, of_series: str) -> str:
    """Return `with_headings` of the number of keys beyond MAX_GRAPHS."""
    count = f"count(group by(key)({series})) > {MAX_GRAPHS}"
    words = f" – the first {MAX_GRAPHS} of $1 keys: others by Keys, above"
    words = f'label_replace(count_values("count", {count}), "words", "{words}", "count", "(.+)")'
    return with_headings(f"group by(words)({words})", series, of_series)


HEADINGS = '/[{,]words="(?<value>[^|"]*)[|](?<text>[^"]*)"/'


def with_headings(words: str, series: str, of_series: str) -> str:
    """Return the label `words` for HEADINGS. value: FOUND if series stand next to other keys; text: words
    if any, or FOUND if all keys are series. Else one blank. Loki reads it, too."""
    found = f"count(({series}) and on(key) ({of_series}))"
    others = f"count(({series}) unless on(key) ({of_series}))"
    only = f'label_replace({found} unless on() {others}, "words", " – {FOUND.lower()}", "", "")'
    text = or_else(f"{words} or on() {only}", "words", " ")
    both = f"({text}) and on() {found} and on() {others}"
    parts = ((both, FOUND), (text, " "))
    return " or on() ".join(
        f'label_replace({part}, "words", "{value}|$1", "words", "(.*)")' for part, value in parts
    )
