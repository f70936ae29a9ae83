"""Tables in the output of the agent's commands."""

from hypothesis import given
from hypothesis import strategies as st

from logshipper_ingest.console.text_table import plural, printed_table, shown_size

cells = st.text(max_size=12)


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    table = printed_table(
        [("JOB", "LINES", "NAME"), ("a", "12345", "x"), ("longer", "7", "yy")], right=range(1, 2)
    )
    assert table == "JOB     LINES  NAME\na       12345  x\nlonger      7  yy\n"


def test_no_line_ends_in_blanks() -> None:
    assert printed_table([("A", "B"), ("1", "")]) == "A  B\n1\n"


def test_a_name_cannot_forge_a_row_or_steer_the_terminal() -> None:
    table = printed_table(
        [("NAME",), ("a\njob9  COMPLETED",), ("\x1b[2J\x07\x9b1m",), ("\r\t\x7f\x00",)]
    )
    assert table.count("\n") == 4
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in table.replace("\n", ""))


@given(
    st.integers(1, 5).flatmap(
        lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1)
    )
)
def test_any_cells_make_one_line_a_row(rows: list[list[str]]) -> None:
    table = printed_table(rows, right={0})
    assert table.count("\n") == len(rows)
    assert table.endswith("\n")
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in table.replace("\n", ""))


def test_sizes() -> None:
    assert shown_size(0) == "0 B"
    assert shown_size(1234567) == "1,234,567 B"


def test_numbers_of_things() -> None:
    texts = [
        plural(number, noun)
        for number, noun in ((0, "line"), (1, "entry"), (1234, "entry"), (2, "key"))
    ]
    assert texts == ["0 lines", "1 entry", "1,234 entries", "2 keys"]
