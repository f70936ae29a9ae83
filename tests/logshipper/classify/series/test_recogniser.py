"""Names, shapes, tables, blocks and bars, line by line."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.classify.series.blocks import FLUSH_SECS
from logshipper.classify.series.items import Record
from logshipper.classify.series.recogniser import Recogniser
from logshipper.classify.series.shapes import MAX_PENDING, MAX_SHAPES

LINES = 4  # of each case, with growing numbers


def records_of(lines: list[str], *, at: float = 0.0) -> list[Record]:
    recogniser = Recogniser()
    records = recogniser.feed([line.encode() for line in lines], at)
    return records + recogniser.flush()


def values_of(lines: list[str]) -> list[dict[str, str]]:
    return [record.values for record in records_of(lines)]


def repeated(line: str) -> list[str]:
    """The line with `{n}` counting, and `{x}` a fraction."""
    return [line.format(n=number, x=f"{1 / number:.3f}") for number in range(1, LINES + 1)]


@pytest.mark.parametrize(
    ("line", "last"),
    [
        ("step {n} loss={x}", {"step": "4", "loss": "0.250"}),
        ("iteration {n}/500 | lm loss: {x} |", {"iteration": "4", "lm loss": "0.250"}),
        ("Epoch: [{n}][10/5005] Loss {x} ({x})",
         {"Epoch": "4", "iteration": "10", "Loss": "0.250", "Loss avg": "0.250"}),
        ("  {n} KSP Residual norm {x}", {"iteration": "4", "KSP Residual norm": "0.250"}),
        ("iter {n}: |grad| = {x}", {"iter": "4", "|grad|": "0.250"}),
        ("time per step (ms): {x} step: {n}", {"time per step (ms)": "0.250", "step": "4"}),
        ("2026-11-28 10:00:0{n},123 INFO train: loss={x} acc={x}", {"loss": "0.250", "acc": "0.250"}),
        ("INFO:root:loss: {x}", {"loss": "0.250"}),
        ("[rank0]: step {n} loss {x}", {"step": "4", "loss": "0.250", "rank": "0"}),
        ("3: step {n} loss {x}", {"step": "4", "loss": "0.250", "rank": "3"}),
        ("total energy  =  -{x} Ry", {"total energy": "-0.250"}),
        ("step {n} loss=nan", {}),
        ("residual = 1.5D-0{n}", {"residual": "1.5e-04"}),
        ("cycle = {n}  norm(t1,t2) = {x}", {"cycle": "4", "norm(t1,t2)": "0.250"}),
        ("step {n} took = {x} seconds = 0.0{n} minutes", {"step": "4", "took": "0.250"}),
        ("step {n} max = {x} min = {x} ms", {"step": "4", "max": "0.250", "min": "0.250"}),
        ("Iteration {n} / LogL: -{x} / Time: 0h:0m:{n}s", {"Iteration": "4", "LogL": "-0.250"}),
        ("step {n} x: {x} y: {x} z: {x}", {"step": "4", "x": "0.250", "y": "0.250", "z": "0.250"}),
        ("top1 acc {x} top5 acc {x}", {"top1 acc": "0.250", "top5 acc": "0.250"}),
        ("{{'loss': {x}, 'epoch': {n}}}", {"loss": "0.250", "epoch": "4"}),
        ("{n}, 0.022: {x}, {x} avg, {x} rate, {x} seconds, 16 images",
         {"iteration": "4", "avg": "0.250", "rate": "0.250", "images": "16"}),
        ("progress: {n}.0 s, {x} tps, lat {x} ms", {"progress": "4.0", "tps": "0.250", "lat": "0.250"}),
        ("step {n} decay(t = {n}.5): {x} / 0.5 = 1.0", {"step": "4", "t": "4.5", "decay": "0.250"}),
        ("step: {n} lat (ms,95%): {x}", {"step": "4", "lat (ms,95%)": "0.250"}),
        ("step {n}: {x} train loss, {x} val loss",
         {"step": "4", "train loss": "0.250", "val loss": "0.250"}),
        ("epoch {n} train: loss {x} acc {x} valid: loss {x} acc {x}",
         {"epoch": "4", "loss": "0.250", "acc": "0.250", "valid loss": "0.250", "valid acc": "0.250"}),
        ("[{n}:00:12] Generation {n}: best = {x}", {"Generation": "4", "best": "0.250"}),
        ("iterations: {n}, training error: {x}", {"iterations": "4", "training error": "0.250"}),
    ],
)  # fmt: skip
def test_numbers_get_the_words_before_them(line: str, last: dict[str, str]) -> None:
    values = values_of(repeated(line))
    assert (values[-1] if values else {}) == last
    assert not values or len(values) == LINES, "held lines are records, too"


@pytest.mark.parametrize(
    "line",
    [
        "GET /index.html HTTP/1.1 200 {n}",
        "-rw-r--r-- 1 root root {n} Nov 28 10:00 file",
        "Connection from 10.0.0.{n} port {n} closed",
        "requests-2.32.{n} requires urllib3<{n},>=1.21.1",
        "[{n}/100] Building CXX object",
        "    at java.base/java.lang.Thread.run(Thread.java:{n})",
        "Downloaded {n} files in {n} seconds",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af{n}",
        "Iteration {n}",
        "{n}: 1 passed, {n} failed, 0 skipped",
        "Dipole moment: x = {x} y = {x} z = {x}",
        "loss: 0.5",
    ],
)
def test_other_lines_are_no_series(line: str) -> None:
    assert values_of(repeated(line)) == []


def test_a_line_that_does_not_recur_is_no_record() -> None:
    assert values_of(["loss = 0.5", "loss = 0.4", "energy = 0.3"]) == []


def test_tables_have_names_above_rows() -> None:
    rows = [f"{step:6d} {1 / (step + 1):8.4f}  -2.5" for step in range(4)]
    expected = [
        {"Step": str(step), "Temp": f"{1 / (step + 1):.4f}", "E pot": "-2.5"} for step in range(4)
    ]
    assert values_of(["  Step      Temp  E pot", *rows]) == expected
    assert (
        values_of(
            ["|  Step |  Temp | E pot |", *(f"| {' | '.join(row.split())} |" for row in rows)]
        )
        == expected
    )
    assert values_of(["a sentence of words", *rows]) == []
    repeated_header = [line for row in rows for line in ("  Step      Temp  E pot", row)]
    assert values_of(repeated_header) == expected


def test_words_above_numbers_name_them() -> None:
    """Rows may lack cells, and hold gaps, marks and units."""
    lines = [
        " Iter    objective    prim res  note    time",
        "    0   1.5000e+00    2.61e+00     -   0.01s",
        "    1   1.4000e+00f   1.61e+00     -   0.02s",
        "    2                 0.61e+00     -   0.03s",
        "    3   1.2000e+00    0.31e+00     -   0.04s",
    ]
    values = values_of(lines)
    assert values[1] == {
        "Iter": "1", "objective": "1.4000e+00", "prim res": "1.61e+00", "time": "0.02",
    }  # fmt: skip
    assert values[2] == {"Iter": "2", "prim res": "0.61e+00", "time": "0.03"}


def test_a_prefix_of_header_and_rows_is_no_column() -> None:
    rows = [
        f"info: [17] stat:  {step:3d}  {step / 7:8.4f}  {step * 3:5d}  tail" for step in range(4)
    ]
    values = values_of(["info: [17] stat:    r      free     cs", *rows])
    assert values[-1] == {"r": "3", "free": "0.4286", "cs": "9"}


def test_cells_may_stand_between_commas() -> None:
    rows = [f'"{step}.0%",{step}000, 0.{step} W,{step}:30' for step in range(1, 5)]
    values = values_of(['#"Progress (%)","Step", power [W],"Time Remaining"', *rows])
    assert values[-1] == {"Progress (%)": "4.0", "Step": "4000", "power [W]": "0.4"}


def test_two_cells_need_a_separator_without_blanks() -> None:
    assert values_of(["epoch,loss", *repeated("{n},{x}")])[-1] == {"epoch": "4", "loss": "0.250"}
    assert values_of(["some text", *repeated("{n},{x}")]) == []


def test_names_may_stand_in_quotes() -> None:
    rows = repeated("{n}.3%  {n}00  -{x}  0:15")
    values = values_of(['#"Progress (%)" "Step"  "Energy (kJ/mole)"    "Time Remaining"', *rows])
    assert values[-1] == {"Progress (%)": "4.3", "Step": "400", "Energy (kJ/mole)": "-0.250"}


def test_a_broken_first_row_does_not_hide_the_header() -> None:
    rows = ["0  0.5  0--", *repeated("{n}  {x}  7  0.1")]
    assert values_of(["Step  Energy  Speed  Gap", *rows])[0]["Step"] == "1"


def test_a_cell_may_hold_limits_and_a_name_may_be_a_sign() -> None:
    rows = repeated("  {n}  {x}  {x}/0.24/1.63  96")
    values = values_of(["  n    #    hom(avg,lo,hi) fmv", *rows])
    assert values[-1] == {"n": "4", "#": "0.250", "hom(avg,lo,hi)": "0.250", "fmv": "96"}


def test_bars_may_stand_between_cells_that_are_no_numbers() -> None:
    rows = [
        f"{mark} 0.{at}s|  {at} |  - | {heuristic} | {at}.5e+03 |{at}.53%| unknown"
        for at, (mark, heuristic) in enumerate(
            zip("p  L", ("locks", "22k", "22k", "x"), strict=True)
        )
    ]
    values = values_of([" time | node |LP it| mem |dualbound  | gap  | compl. ", *rows])
    assert values[-1] == {"time": "0.3", "node": "3", "dualbound": "3.5e+03", "gap": "3.53"}
    assert len(values) == len(rows)


def test_whole_numbers_without_a_counter_need_many_rows() -> None:
    numbers = random.Random(1)
    rows = [
        f"{numbers.randrange(9):2d}  0  {numbers.randrange(999):5d} {numbers.randrange(99):3d} "
        f"{numbers.randrange(99):3d} {numbers.randrange(99):3d}"
        for _ in range(12)
    ]
    header = [" procs ------io------ --cpu--", " r  b     bi  bo  us  sy"]
    assert len(values_of([*header, *rows])) == 12
    assert values_of([*header, *rows[:11]]) == []
    assert values_of([*header, *sorted(rows)]) == [], "a sorted listing"


def test_words_may_follow_rows_that_count() -> None:
    words = ["", "expand", "initial", "reflect", "expand", "expand"]
    rows = [f"   {at}   {at}.5   {30 - at}   {word}" for at, word in enumerate(words)]
    assert len(values_of(["   n    f(x)   size   Procedure", *rows])) == len(rows)
    others = [f"   {at}   {at}.5   {30 - at}   name{at}x" for at in range(6)]
    assert values_of(["   n    f(x)   size   Procedure", *others]) == []


def test_a_word_may_follow_a_counter() -> None:
    rows = [f"   {at} DIIS/Diag.   0.{at}   -17.{at}   1.5E-0{at}" for at in range(1, 5)]
    values = values_of([" Step Method      Time    Energy    Change", *rows])
    assert values[-1] == {"Step": "4", "Time": "0.4", "Energy": "-17.4", "Change": "1.5E-04"}
    assert values_of([" I    Type        Name    Value     Gradient", *rows]) == []


def test_a_label_without_a_header_numbers_its_columns() -> None:
    rows = repeated("fld:, {n}0.0, -{x}, 0.5")
    assert values_of(["text", *rows])[-1] == {"fld 1": "40.0", "fld 2": "-0.250", "fld 3": "0.5"}


def test_blanks_behind_a_bracket_change_nothing() -> None:
    lines = [f"Test: [{at:4d}/50]  Acc: {at / 7:.3f} ({at / 2:6.3f})" for at in (5, 15, 25, 35)]
    lines[1] = lines[1].replace("[  15", "[15")
    assert len(values_of(lines)) == len(lines)


def test_rows_with_names_of_their_own_are_a_listing() -> None:
    lines = []
    for step in range(6):
        lines += [
            "  No. Tag        X         Y         Z",
            "  --- ---    -----     -----     -----",
        ]
        lines += [
            f"   {at} {atom}      0.{step}{at}     0.1{at}    -0.3{at}"
            for at, atom in ((1, "O"), (2, "H"))
        ]
        lines += [""]
    assert values_of(lines) == []


def test_pairs_may_stand_before_words_that_differ() -> None:
    tails = ("acc: false", "t: 2.5, acc: true", "new: 1", "x: 0.5, y: 2", "z: nothing")
    lines = [
        f"INFO iter: {at}, cost: {1 / (at + 1):.3f}, best: 0.1, {tail}"
        for at, tail in enumerate(tails)
    ]
    values = values_of(lines)
    assert len(values) == 5
    assert values[1] == {"iter": "1", "cost": "0.500", "best": "0.1", "t": "2.5"}
    without_counter = [line.replace("iter", "port") for line in lines]
    assert values_of(without_counter) == []


def test_pairs_need_no_sign_at_the_begin_of_a_line() -> None:
    lines = [
        f"info depth {n} score cp -{n * 3} nodes {n * 99} time {n} pv {'e7e6 ' * n}"
        for n in range(1, 5)
    ]
    assert values_of(lines)[-1] == {"depth": "4", "score cp": "-12", "nodes": "396", "time": "4"}
    assert len(values_of(lines)) == 4
    assert values_of([line.replace("depth", "width") for line in lines]) == []


def test_a_label_of_commas_finds_its_header_far_above() -> None:
    steps = [f"solver: converged after {n} iterations" for n in range(9)]
    rows = [f"tmfreqs:, {n}, 0.{n}, 0.{n * n}" for n in range(1, 5)]
    lines = ["Solving for bands", "tmfreqs:, k index, k1, band 1"]
    for row in rows:
        lines += [*steps, row]
    assert values_of(lines)[-1] == {"k index": "4", "k1": "0.4", "band 1": "0.16"}


def test_a_flag_behind_a_number_is_no_cell() -> None:
    header = "   Step   MAX Force     RMS Force      MAX Disp    ~"
    row = "    {n}     1.39e-0{n} *    8.41e-0{n} o    7.66e-0{n} *  ~"
    values = values_of([header, "-" * 50 + " ~", *repeated(row)])
    assert values[-1] == {
        "Step": "4", "MAX Force": "1.39e-04", "RMS Force": "8.41e-04", "MAX Disp": "7.66e-04",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("  Atom     X        Y        Z", "  {n}   {x}   {x}   {x}"),
        ("  L      x        y        z    total", "  1   {x}   {x}   {x}   {x}"),
    ],
)
def test_coordinates_are_a_listing(header: str, row: str) -> None:
    assert values_of([header, *repeated(row)]) == []


def test_coordinates_behind_a_counter_are_series() -> None:
    values = values_of(["  t      x      y      z", *repeated("  0.{n}   {x}  {x}  {x}")])
    assert values[-1] == {"t": "0.4", "x": "0.250", "y": "0.250", "z": "0.250"}


def test_redrawn_rows_count_once_no_line_ends() -> None:
    recogniser = Recogniser()
    rows = [
        f"frame= {at}00 fps= 25 size= {at}kB time=00:00:0{at} speed=1.{at}x" for at in range(1, 6)
    ]
    found = [recogniser.feed_bars([row.encode()], at, is_still=True) for at, row in enumerate(rows)]
    assert [len(records) for records in found] == [0, 0, 3, 1, 1], (
        "the first row waits for the second"
    )
    assert found[-1][0].values == {"frame": "500", "fps": "25", "size": "5", "speed": "1.5"}
    assert Recogniser().feed_bars([row.encode() for row in rows], 1.0, is_still=False) == []


def test_a_line_without_its_end_is_not_redrawn() -> None:
    recogniser = Recogniser()
    records = []
    for number, line in enumerate(repeated("[rank0]: step {n} loss: {x}")):
        assert recogniser.feed_bars([line.encode()], float(number), is_still=True) == []
        records += recogniser.feed([line.encode()], number + 0.1)
    assert len(records + recogniser.flush()) == LINES


def test_rows_may_begin_with_a_label() -> None:
    rows = [f"DAV:  {step}   -0.{step}E+01   {step}.5" for step in range(1, 5)]
    values = values_of(["       N       E        rms", *rows])
    assert values[-1] == {"N": "4", "E": "-0.4E+01", "rms": "4.5"}


def test_places_tell_the_cells_of_rows_with_gaps_and_clocks() -> None:
    lines = ["      Step     Time      Energy    fmax", "BFGS:    0 12:33:08    8.046844"]
    lines += [f"BFGS:    {step} 12:33:08    {step}.081936  0.{step}08" for step in range(1, 4)]
    assert values_of(lines)[0] == {"Step": "0", "Energy": "8.046844"}
    assert values_of(lines)[-1] == {"Step": "3", "Energy": "3.081936", "fmax": "0.308"}


def test_a_counter_leads_the_lines_below_it() -> None:
    lines = []
    for step in range(1, 6):
        lines += [
            f"Time = 0.{step}", "", f"Solving for Ux, Initial residual = 1e-{step}, No Iterations {step}",
            f"Solving for Uy, Initial residual = 2e-{step}, No Iterations {step}",
        ]  # fmt: skip
    assert values_of(lines)[-1] == {
        "Time": "0.5", "Ux Initial residual": "1e-5", "Ux No Iterations": "5",
        "Uy Initial residual": "2e-5", "Uy No Iterations": "5",
    }  # fmt: skip
    assert len(values_of(lines)) == 5


def test_boxes_are_records() -> None:
    lines = []
    for step in range(1, 6):
        lines += ["-----", "| time/   |  |", f"|  fps    | {step * 7} |", f"|  iterations | {step} |",
                  "| train/  |  |", f"|  loss   | 0.{step} |", "-----"]  # fmt: skip
    assert values_of(lines) == [
        {"fps": str(step * 7), "iterations": str(step), "loss": f"0.{step}"} for step in range(1, 6)
    ]


def test_a_counter_that_stands_once_is_no_key() -> None:
    assert values_of(["Current step : 0", *repeated("loss = {x}")])[-1] == {"loss": "0.250"}


@pytest.mark.parametrize(
    ("bar", "values"),
    [
        ("Epoch 3/4:  50%|█████     | 5/10 [00:01<00:01, 9.5it/s, loss=0.5, v_num=0]",
         {"epoch": "3", "count": "5", "loss": "0.5", "v_num": "0"}),
        ("Epoch 3/3  ━━━━━━━━━━ 16/16 0:00:00 • 0:00:00 17.70it/s train_loss: 0.175 val_loss: 0.171",
         {"epoch": "3", "count": "16", "train_loss": "0.175", "val_loss": "0.171"}),
        (" 50%|█████     | 5/10 [00:01<00:01, 9.5it/s]", {}),
        (" 50%|█████     | 5/10 [00:01<00:01, 9.5it/s, nc: 1 | eff(%): 6.25]",
         {"count": "5", "nc": "1", "eff(%)": "6.25"}),
    ],
)  # fmt: skip
def test_bars_give_their_pairs(bar: str, values: dict[str, str]) -> None:
    recogniser = Recogniser()
    found = recogniser.feed_bars([bar.encode()], 1.0, is_still=False)
    assert [record.values for record in found] == ([values] if values else [])
    assert recogniser.feed_bars([bar.encode()], 2.0, is_still=False) == [], "nothing changed"


def test_an_open_record_waits_a_second() -> None:
    recogniser = Recogniser()
    for number, line in enumerate(repeated("loss = {x}")):
        recogniser.feed([line.encode()], float(number))
    due = recogniser.next_tick()
    assert due is not None
    assert recogniser.tick(due - FLUSH_SECS / 2) == []
    assert [record.values for record in recogniser.tick(due)] == [{"loss": "0.250"}]
    assert recogniser.next_tick() is None


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_chunks_change_nothing(sizes: list[int], chance: random.Random) -> None:
    lines = [line for n in range(1, 9) for line in (
        f"Time = {n}", f"a: 0.{n} b: 1.{n}", "x y z", f"{n} 0.{n} 1.{n}", f"step {n} loss 0.{n}",
    )]  # fmt: skip
    recogniser = Recogniser()
    records: list[Record] = []
    rest = [line.encode() for line in lines]
    while rest:
        size = chance.choice(sizes)
        records += recogniser.feed(rest[:size], 0.0)
        rest = rest[size:]
    assert records + recogniser.flush() == records_of(lines)


def test_shapes_have_a_limit() -> None:
    recogniser = Recogniser()
    words = [f"x{a}{b}{c}" for a in "abcdefghij" for b in "klmnopqrst" for c in "uvwxyzabcd"]
    for word in words:
        for number in range(1, 5):
            recogniser.feed([f"{word} = 0.{number}".encode()], 0.0)
    assert recogniser.shapes == MAX_SHAPES
    assert recogniser.take_over_limit() == {"shapes": len(words) - MAX_SHAPES}
    assert recogniser.take_over_limit() == {}
    for word in words:
        recogniser.feed([f"other {word} = 0.5".encode()], 0.0)
    assert recogniser.pending == MAX_PENDING


@pytest.mark.parametrize(
    "line",
    [b"1" * 2000, b"1 " * 1000, b"a1 " * 600, b"= 1 " * 500, b"|1" * 1000, b" " * 2000 + b"1"],
)
def test_hostile_lines_are_harmless(line: bytes) -> None:
    recogniser = Recogniser()
    for number in range(20):
        recogniser.feed([line, line + str(number).encode()], float(number))
    recogniser.flush()
