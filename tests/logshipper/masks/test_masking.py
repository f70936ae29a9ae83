"""Values with a secret's name are masked, regardless of text around the name and of the value's
form."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.masks import masking
from logshipper.masks.masking import MASK, masked_json, masked_lines, masked_text, masked_words

WORDS = ("password", "passwd", "secret", "token", "api key", "credential")
VALUE = "hunter2"


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (["PGPASSWORD=hunter2", "psql"], ["PGPASSWORD=***", "psql"]),
        (["--dbpassword", "hunter2", "--lr", "0.1"], ["--dbpassword", "***", "--lr", "0.1"]),
        (["--apiToken=hunter2"], ["--apiToken=***"]),
        (["--apiToken=", "hunter2"], ["--apiToken=", "***"]),
        (["--password", "-hunter2", "x"], ["--password", "***", "x"]),
        (["--ask-password", "--password", "hunter2"], ["--ask-password", "***", "***"]),
        (["--api-key", "hunter2"], ["--api-key", "***"]),
        (["API_KEY=hunter2"], ["API_KEY=***"]),
        (["--apikey:hunter2"], ["--apikey:***"]),
        (["db.password=hunter2"], ["db.password=***"]),
        (["--aws_credentials", "hunter2"], ["--aws_credentials", "***"]),
        (
            ["--pw", "hunter2", "--pass=hunter2", "--auth", "hunter2"],
            ["--pw", "***", "--pass=***", "--auth", "***"],
        ),
        (["sh", "-c", "cd x; PGPASSWORD=hunter2 psql"], ["sh", "-c", "cd x; PGPASSWORD=***"]),
        (
            ["sh", "-c", "train --lr=0.1 --password hunter2"],
            ["sh", "-c", "train --lr=0.1 --password ***"],
        ),
        (["curl", "-H", "Authorization: Bearer hunter2"], ["curl", "-H", "Authorization: ***"]),
        (["-H", "X-Api-Key: hunter2"], ["-H", "X-Api-Key: ***"]),
        (["--config", '{"a": 1, "password": "hunter2"}'], ["--config", '{"a": 1, "password": ***']),
        (["https://ann:hunt@hunter2@example.org/x"], ["https://***@example.org/x"]),
        (
            ["https://example.org/x?n=1&access_token=hunter2"],
            ["https://example.org/x?n=1&access_token=***"],
        ),
    ],
)
def test_command_lines(argv: list[str], output: list[str]) -> None:
    assert list(masked_words(argv)) == output


def test_what_is_no_secret_is_shown() -> None:
    argv = [
        "python",
        "train_tokenizer.py",
        "--lr",
        "0.1",
        "author=ann",
        "compass=1",
        "bypass=1",
        "-x",
        "a@b:c",
    ]
    assert list(masked_words(argv)) == argv
    assert masked_lines("def tokenize(text, n):\n    return os.getenv('HF_TOKEN')") == (
        "def tokenize(text, n):\n    return os.getenv('HF_TOKEN')"
    )


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("+password = 'hunter2'", "+password = ***"),
        ("-    API_KEY: str = 'hunter2'  # ours", "-    API_KEY: ***"),
        ("+db_passwd: hunter2 with blanks", "+db_passwd: ***"),
        ("+os.environ['WANDB_API_KEY'] = 'hunter2'", "+os.environ['WANDB_API_KEY'] = ***"),
        ("+os.environ.setdefault('TOKEN', 'hunter2')", "+os.environ.setdefault('TOKEN', ***"),
        ("+connect(user='x', password='hunter2')", "+connect(user='x', password=***"),
        (" url = https://ann:hunter2@example.org/x.git", " url = https://***@example.org/x.git"),
        ("+'password' => 'hunter2',", "+'password' => ***"),
        ("+<password>hunter2</password>", "+<password>***"),
        ("+lr = 0.2", "+lr = 0.2"),
    ],
)
def test_lines_of_a_diff(line: str, output: str) -> None:
    assert (
        masked_lines(f"--- a/token.py\n+++ b/token.py\n{line}\n+x")
        == f"--- a/token.py\n+++ b/token.py\n{output}\n+x"
    )


JOINED = st.text("abcXYZ019_-.", max_size=12)


@st.composite
def secret_names(draw: st.DrawFn) -> str:
    word = draw(st.sampled_from(WORDS)).replace(" ", draw(st.sampled_from(("", "-", "_", "."))))
    word = "".join(draw(st.sampled_from((letter.lower(), letter.upper()))) for letter in word)
    return draw(JOINED) + word + draw(JOINED)


VALUES = st.text("abcXYZ019-=:/@,;!$%&*()[]{}'\" \\\n", max_size=20).map(lambda text: text + VALUE)


@given(
    secret_names(),
    VALUES,
    st.lists(st.sampled_from(("-x", "y", "--lr=0.1", "PATH=/a")), max_size=3),
)
def test_no_value_of_any_such_name_is_shown(name: str, value: str, before: list[str]) -> None:
    for words in (
        [f"{name}={value}"],
        [f"--{name}={value}"],
        [f"--{name}", value],
        [f"-{name}=", value],
        ["sh", "-c", f"x --y=1; {name}={value}"],
        ["sh", "-c", f"x --y=1 --{name} {value}"],
    ):
        assert VALUE not in " ".join(masked_words([*before, *words]))
    assert VALUE not in masked_text(f'{{"a": 1, "{name}": {value}')
    assert VALUE not in str(masked_json({"env": {name: value}, "args": ["x", f"--{name}", value]}))


@given(st.text("ap ik_-eypasword=:/@'\"tn\n", max_size=60))
def test_masking_again_changes_nothing(text: str) -> None:
    assert masked_text(masked_text(text)) == masked_text(text)


@pytest.mark.parametrize(
    "piece", ["token", "a", "-", "--token-", "passwd ", "://", "api ", '"', "token\t"]
)
def test_giant_texts_take_time_in_proportion(piece: str) -> None:
    """Names are capped; quadratic time once took minutes."""
    began = time.process_time()
    masked_text(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 30


@given(st.text("ap ik_-eypasword=:>,/@'\"tn()\n", max_size=60))
def test_text_that_is_passed_over_has_nothing_to_be_masked(text: str) -> None:
    if masking._NEEDED.isdisjoint(text):
        for pattern in (masking._ASSIGNED, masking._GIVEN, masking._USERINFO, masking._OPTION):
            assert pattern.search(text) is None


def test_json_keeps_what_is_no_secret() -> None:
    environment: dict[object, str] = {"A": "1", "DB_PASSWORD": "x", "TOKEN": ""}
    value = {"exec": "/bin/x", "args": ["-n", "1"], "env": environment, "n": [1, {"b": 2}]}
    assert masked_json(value) == {**value, "env": {**environment, "DB_PASSWORD": MASK}}
    assert masked_json({"script": "export API_KEY=x\nrun"}) == {"script": "export API_KEY=***\nrun"}
