"""The X-axis rule against an oracle that reads R25 and its arrows literally over the whole list of
records."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.config import AUTO
from logshipper_ingest.model.key_reports import KeyReport
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.model.x_axis import MAX_WHOLE, Entry, XAxis, XChoice, merge_all
from tests.tools.stress.model_settings import examples

Number: TypeAlias = int | float
Record: TypeAlias = dict[str, object]
Task: TypeAlias = list[Record]  # records of one attempt and task, in order

KEYS = ("a", "b", "c", "val/acc", "progress", "epoch")
_SMALL = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -2.5, 2.0, 1e3]),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), 10**30, 10**30 + 1, 1e30]),
)
_VALUE = st.one_of(_SMALL, _SMALL, _SMALL, st.booleans(), st.sampled_from(["0.1", "", None, [1]]))


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """Return records whose numbers mostly rise, fall or stay the same, key by key, or are
    random."""
    count = draw(st.integers(0, 8))
    keys = draw(
        st.lists(st.sampled_from(KEYS[: draw(st.sampled_from([3, 4, 6]))]), unique=True, max_size=4)
    )
    courses: dict[str, Sequence[object]] = {}
    for key in keys:
        values: Sequence[object] = draw(st.lists(_VALUE, min_size=count, max_size=count))
        order = draw(st.sampled_from(["as is", "rising", "falling", "nested"]))
        if order in ("rising", "falling"):
            values = sorted(
                draw(st.lists(_SMALL, min_size=count, max_size=count)), reverse=order == "falling"
            )
        if order == "nested":
            values = [{"in": value} for value in values]
        courses[key] = values
    records: Task = []
    for at in range(count):
        subset: set[str] = set(keys)
        if draw(st.booleans()) and keys:
            subset = draw(st.sets(st.sampled_from(keys)))
        records.append({key: courses[key][at] for key in keys if key in subset})
    return records


# ---- the oracle


def numbers_of(record: Record) -> dict[str, Number]:
    """Return numeric leaves as `a.b`. Booleans and strings are no numbers (R22)."""
    numbers: dict[str, Number] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            numbers.update(
                {f"{key}.{inner}": number for inner, number in numbers_of(value).items()}
            )
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers[key] = value
    return numbers


def increases(values: list[Number]) -> bool:
    """Whether the values of the key's records rise at least once and never fall."""
    steps = list(pairwise(values))
    return all(later >= earlier for earlier, later in steps) and any(
        later > earlier for earlier, later in steps
    )


def rule_of(key: str, job: list[Task]) -> int:
    """Return R25's rule (3 to 7), judged separately for each attempt and task with the key, and
    merged by the worst."""
    courses = [
        [numbers[key] for numbers in map(numbers_of, task) if key in numbers] for task in job
    ]
    courses = [course for course in courses if course]
    integer = all(isinstance(value, int) for course in courses for value in course)
    rising = all(increases(course) for course in courses)
    one_way = all(increases(course) or increases(course[::-1]) for course in courses)
    if rising:
        return 3 if integer else 4
    if one_way:
        return 5 if integer else 6
    return 7


def choice_of(job: list[Task]) -> tuple[str | None, int]:
    keys = {key for task in job for record in task for key in numbers_of(record)}
    for rule, key in enumerate(("progress", "epoch"), start=1):
        if key in keys:
            return key, rule
    ranked = sorted((rule_of(key, job), key) for key in keys)
    return (ranked[0][1], ranked[0][0]) if ranked else (None, 0)


def own_choice_of(job: list[Task], key: str) -> tuple[str | None, int]:
    """Return the chosen X. A key that never shares a record with it has its own choice among its
    records, unless that is the key itself."""
    choice = choice_of(job)
    own_records = [[record for record in task if key in numbers_of(record)] for task in job]
    if any(choice[0] in numbers_of(record) for task in own_records for record in task) or not any(
        own_records
    ):
        return choice
    best = choice_of(own_records)
    return best if best[0] != key else (None, 0)


# ---- tests


def learn(task: Task, begin: int = 0) -> XAxis:
    axis = XAxis()
    add(axis, task, begin)
    return axis


def add(axis: XAxis, task: Task, begin: int = 0) -> None:
    for time_ns, record in enumerate(task, start=begin):
        parsed = parse_record(json.dumps(record).encode())
        assert parsed is not None
        axis.add(parsed, time_ns, time_ns + 1)


def short(choice: XChoice) -> tuple[str | None, int]:
    return choice.key, choice.rule


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(tasks(), max_size=4))
def test_choice_is_the_oracle_s_r24_r25_r26(job: list[Task]) -> None:
    axis = merge_all(map(learn, job))
    assert short(axis.choose()) == choice_of(job)
    for key in {key for task in job for record in task for key in numbers_of(record)}:
        assert short(axis.x_for(key)) == own_choice_of(job, key)


@settings(max_examples=examples(50), deadline=None)
@given(tasks(), st.data())
def test_going_on_from_json_at_any_record_is_as_good_as_the_whole(
    task: Task, data: st.DataObject
) -> None:
    split = data.draw(st.integers(0, len(task)))
    axis = XAxis.from_json(learn(task[:split]).to_json())
    add(axis, task[split:], split)
    assert axis.to_json() == learn(task).to_json()
    assert short(axis.choose()) == choice_of([task])


def reports_of(task: Task) -> list[KeyReport]:
    """Return each key's last, least and largest number (the first of equal ones), with X there or
    the record's number."""
    reports = []
    for key in {key for record in task for key in numbers_of(record)}:
        records = [(n, numbers_of(record)) for n, record in enumerate(task, start=1)]
        records = [(n, numbers) for n, numbers in records if key in numbers]
        last = records[-1]
        least = min(records, key=lambda record: record[1][key])
        largest = max(records, key=lambda record: record[1][key])
        three = (last, least, largest)
        x, _ = own_choice_of([task], key)
        has_x = x not in (None, key) and all(x in numbers for _, numbers in three)
        values = (numbers[key] for _, numbers in three)
        at = (numbers[x] if has_x and x else n for n, numbers in three)
        reports.append(KeyReport(key, len(records), x if has_x else None, *values, *at))
    return sorted(reports)


@settings(max_examples=examples(200), deadline=None)
@given(tasks(), st.data())
def test_key_reports_are_the_oracle_s_wherever_the_state_was_written(
    task: Task, data: st.DataObject
) -> None:
    axis, begin = XAxis(keeps_places=True), 0
    for end in sorted(data.draw(st.sets(st.integers(0, len(task))))):
        add(axis, task[begin:end], begin)
        begin = end
        if data.draw(st.booleans()):
            axis = XAxis.from_json(axis.to_json())
    add(axis, task[begin:], begin)
    assert sorted(axis.key_reports()) == reports_of(task)
    assert list(map(str, sorted(axis.key_reports()))) == list(map(str, reports_of(task)))


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 30), st.sets(st.integers(0, 30)), st.integers(0, 1 << 32))
def test_reports_of_many_keys_don_t_depend_on_when_the_state_was_written(
    count: int, written: set[int], seed: int
) -> None:
    random = Random(seed)
    keys = [f"k{number:02}" for number in range(2 * MAX_WHOLE)]
    task: Task = [
        {
            **{key: random.choice([at, -at, random.random()]) for key in random.sample(keys, 20)},
            "steps": at,
        }
        for at in range(count)
    ]
    whole, parts = XAxis(keeps_places=True), XAxis(keeps_places=True)
    add(whole, task)
    for at in range(count):
        parts = XAxis.from_json(parts.to_json()) if at in written else parts
        add(parts, task[at : at + 1], at)
    assert parts.key_reports() == whole.key_reports()
    for report in (report for report in whole.key_reports() if report.x == "steps"):
        assert report.last_at == max(at for at in range(count) if report.key in task[at])


@settings(max_examples=examples(50), deadline=None)
@given(tasks(), tasks(), tasks())
def test_merging_is_associative_and_commutative(first: Task, second: Task, third: Task) -> None:
    a, b, c = learn(first), learn(second, 100), learn(third, 200)
    before = a.to_json(), b.to_json()
    assert a.merge(b).to_json() == b.merge(a).to_json()
    assert a.merge(b).merge(c).to_json() == a.merge(b.merge(c)).to_json()
    assert (a.to_json(), b.to_json()) == before  # neither side is changed
    assert XAxis.from_json(a.merge(b).to_json()).to_json() == a.merge(b).to_json()


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 200), st.integers(150, 260), st.integers(0, 200))
def test_merging_past_the_limit_of_keys_is_associative_too(
    first: int, count: int, second: int
) -> None:
    a = learn([{f"k{number:03d}": number for number in range(first, first + count)}])
    b = learn([{f"k{number:03d}": 1.5 for number in range(second, second + count)}, {"epoch": 1}])
    c = learn([{f"k{number:03d}": -number for number in range(100)}])
    assert a.merge(b).to_json() == b.merge(a).to_json()
    assert a.merge(b).merge(c).to_json() == a.merge(b.merge(c)).to_json()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(tasks(), min_size=1, max_size=3))
def test_counts_and_extremes_of_keys(job: list[Task]) -> None:
    records = [record for task in job for record in task]
    keys = {key.key: key for key, _ in merge_all(map(learn, job)).key_stats() if key.numbers}
    all_numbers = [numbers_of(record) for record in records]
    for key in {key for numbers in all_numbers for key in numbers}:
        values = [numbers[key] for numbers in all_numbers if key in numbers]
        assert replace(keys[key], path=(), count=0) == replace(
            keys[key],
            path=(),
            count=0,
            numbers=len(values),
            min=min(values),
            max=max(values),
            integer=all(isinstance(value, int) for value in values),
        )
    assert set(keys) == {key for numbers in all_numbers for key in numbers}


VALUES = [0, 1, 1.0, 2.5, -3, 1e300, 10**40, True, None, "a", float("nan"), float("inf"), {"b": 1}]


def test_records_together_count_as_one_by_one() -> None:
    dice = Random(5)
    for _ in range(300):
        entries: list[Entry] = []
        for _ in range(dice.randint(0, 6)):
            keys = dice.sample(["step", "loss", "lr", "x" * 300], dice.randint(0, 3))
            origin = dice.choice(["", AUTO])
            values = dice.choice([VALUES[:6], VALUES])
            for _ in range(dice.randint(1, 5)):
                record: dict[str, object] = {key: dice.choice(values) for key in keys}
                entries.append((record, dice.randint(1, 99), len(entries), origin))
        keeps_places = dice.random() < 0.3
        together, single = XAxis(keeps_places=keeps_places), XAxis(keeps_places=keeps_places)
        at = dice.randint(0, len(entries))
        together.add_all(entries[:at])
        together.add_all(entries[at:])
        for entry in entries:
            single.add(*entry)
        assert together.to_json() == single.to_json()
        assert repr(together.key_stats()) == repr(single.key_stats())
        assert repr(together.latest()) == repr(single.latest())
