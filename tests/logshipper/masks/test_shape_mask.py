"""Secrets are masked by their shape, at every cut of the text; all other text stays unchanged
(R33)."""

import re
import time

import pytest

from logshipper.masks.secret_shapes import SHAPES
from logshipper.masks.shape_mask import (
    MAX_KEY_LINES,
    MAX_OTHER_LINES,
    ShapeMask,
    _literals,
    cut,
    masked_text,
    masked_words,
)
from tests.tools.stress.adversaries import slow_text

# assembled here, so that scanners don't report this file as a leak
LETTERS = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0"
HEX = "0123456789abcdef" * 4
SECRETS = [
    *(f"gh{kind}_" + LETTERS[:36] for kind in "pousr"),
    "github" + "_pat_" + LETTERS[:22] + "_" + LETTERS,
    "glpat" + "-" + LETTERS[:20],
    "hf" + "_" + LETTERS[:34],
    "sk" + "-" + LETTERS,
    "sk-" + "proj-" + LETTERS + "_-" + LETTERS,
    "sk-" + "ant-api03-" + LETTERS + "-" + LETTERS,
    "AKI" + "A" + "ABCDEFGH23456IJK",
    "AIz" + "a" + LETTERS[:35],
    "ya29" + "." + LETTERS,
    "xox" + "b-" + "123456789012-123456789012-" + LETTERS[:24],
    "sk" + "_live_" + LETTERS[:24],
    "npm" + "_" + LETTERS[:36],
    "pypi" + "-AgEIcHlwaS5vcmc" + LETTERS,
    "dckr" + "_pat_" + LETTERS[:27],
    "dop" + "_v1_" + HEX,
    "dapi" + HEX[:32],
    "eyJ" + "hbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxIn0" + "." + LETTERS,
]
NAMED = [
    ("AccountKey=", LETTERS + "=="),
    ("https://hooks.slack.com/", "services/T00000000/B00000000/" + LETTERS[:24]),
    ("wandb login ", HEX[:40]),
    ("WANDB_API_KEY=", HEX[:40]),
    ("wandb.login(key='", HEX[:40]),
    ("aws_secret_access_key = ", LETTERS),
    ("Authorization: Bearer ", LETTERS),
    ("authorization: Basic ", "dXNlcjpwYXNz"),
    ("Proxy-Authorization: Basic ", "dXNlcjpwYXNz"),
    ("Cookie: ", "session=a1; theme=dark"),
    ("X-Api-Key: ", LETTERS[:20]),
    ("https://h/x?X-Amz-Signature=", HEX),
    ("https://h/x?sv=1&sig=", LETTERS + "%3D"),
    ("machine h login u password ", "hunter2"),
    ("postgres://", "user:hunter2"),
]


def masked(text: str) -> str:
    return ShapeMask().masked(text.encode()).decode()


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_becomes_a_mask(secret: str) -> None:
    for before, after in (("", ""), ("key ", " end"), ('{"a": "', '"}'), ("x=", ","), ("(", ")")):
        assert masked(f"{before}{secret}{after}\n") == f"{before}***{after}\n"


@pytest.mark.parametrize(
    "secret",
    [
        *SECRETS,
        "glpat" + "-aB3.dE5.gH7.jK9.mN1",
        "ya29" + ".a0.AfH6SMBx1234567890",
        "xox" + "b-12.34567.8901.23",
    ],
)
def test_a_secret_becomes_a_mask_in_a_long_text(secret: str) -> None:
    words = "\n".join(literal.decode() for shape in SHAPES for literal in shape.literals)
    text = f"{words}\n" * 9
    assert f" {secret} " not in masked(f"{text}the key {secret} leaked\n{text}")


@pytest.mark.parametrize(("name", "secret"), NAMED)
def test_a_name_stays_and_its_secret_goes(name: str, secret: str) -> None:
    end = "@h/x" if name.endswith("//") else ""
    assert masked(f"{name}{secret}{end}\n") == f"{name}***{end}\n"
    again = f"{name}***{end}\n"
    mask = ShapeMask()
    assert mask.masked(again.encode()).decode() == again
    assert mask.counts == {}


@pytest.mark.parametrize(
    "text",
    [
        f"commit {HEX[:40]}",
        f"sha256:{HEX}",
        "123e4567-e89b-12d3-a456-426614174000",
        "123456789012345678901234567890",
        "task-1 of disk-0123456789012345678901",
        "checkpoint-12000/pytorch_model-00001-of-00002.bin",
        "torch-2.1.0+cu121-cp311-cp311-linux_x86_64.whl",
        "ssh://git@github.com/a/b",
        "git+https://github.com/a/b@v1",
        "see the cookie: it is fine",
        "authorization failed",
        "machine learning, login required, password changed",
        "wandb: Syncing run",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert masked(text + "\n") == text + "\n"


def test_a_private_key_over_many_texts() -> None:
    kind = "RSA PRIVATE " + "KEY-----"
    lines = [
        f"-----BEGIN {kind}",
        "Proc-Type: 4,ENCRYPTED",
        "",
        LETTERS,
        "ab==",
        f"-----END {kind}",
    ]
    mask = ShapeMask()
    texts = [mask.masked(f"{line}\n".encode()) for line in ["before", *lines, "after"]]
    assert texts == [
        b"before\n",
        b"***\n",
        b"***\n",
        b"\n",
        b"***\n",
        b"***\n",
        b"***\n",
        b"after\n",
    ]
    assert mask.counts == {"private key": 1}
    at_once = "\n".join(lines).replace("\n", "\\n")
    assert masked(f'{{"key": "{at_once}"}}\n') == '{"key": "***"}\n'


def test_a_private_key_without_an_end_ends() -> None:
    mask = ShapeMask()
    mask.masked(b"-----BEGIN " + b"PRIVATE KEY-----\n")
    line = f"{LETTERS}\n".encode()
    assert mask.masked(line * (MAX_KEY_LINES - 1)).endswith(b"***\n")
    assert mask.masked(line * 2) == b"***\n" + line


def test_lines_of_others_end_a_private_key() -> None:
    """A few of them may be inside the key."""
    mask = ShapeMask()
    mask.masked(b"-----BEGIN " + b"PRIVATE KEY-----\n")
    line = f"{LETTERS}\n".encode()
    few = b"epoch 1, loss 0.25.\n" * (MAX_OTHER_LINES - 1)
    assert mask.masked(few + line) == few + b"***\n"
    assert mask.masked(few) == few
    assert mask.masked(b"one more\n" + line) == b"one more\n" + line


@pytest.mark.parametrize("at", [0, 150, 299])
def test_a_key_among_many_lines_with_its_name(at: int) -> None:
    lines = ["login ok"] * 300
    lines[at] = f"wandb login {HEX[:40]}"
    shown = masked("\n".join(lines) + "\n").split("\n")
    assert shown[at] == "wandb login ***"
    assert shown.count("login ok") == 299


def test_several_private_keys_of_a_line() -> None:
    kind = "PRIVATE " + "KEY-----"
    key = f"-----BEGIN {kind}\\n{LETTERS}\\n-----END {kind}"
    assert masked(f"a {key} b {key} c\n") == "a *** b *** c\n"
    assert ShapeMask().masked_open(f"a {key} b {key[:40]}".encode()) == b"a *** b ***"


def test_the_next_line_may_hold_the_secret() -> None:
    mask = ShapeMask()
    lines = ["AKI" + "AABCDEFGH23456IJK", LETTERS, "machine h", "  login u", "  password hunter2"]
    shown = [mask.masked(f"{line}\n".encode()).decode() for line in lines]
    assert shown == ["***\n", "***\n", "machine h\n", "  login u\n", "  password ***\n"]


@pytest.mark.parametrize("secret", SECRETS)
def test_an_open_line_hides_the_begin_of_a_secret(secret: str) -> None:
    mask = ShapeMask()
    for end in range(12, len(secret) + 1):
        shown = mask.masked_open(f"loading {secret[:end]}".encode())
        assert secret[8:end] not in shown.decode()
    assert mask.counts == {}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_cut_never_goes_through_a_secret(secret: str) -> None:
    for end in range(1, len(secret) + 90):
        text = ("x " * 50 + secret + " y" * 50).encode()[: 100 + end]
        at = cut(text)
        begin = 100
        assert not begin < at < min(begin + len(secret), len(text))


def test_words_and_texts() -> None:
    assert masked_words(["wandb", "login", HEX[:40], "x"]) == ["wandb", "login", "***", "x"]
    assert masked_words(["-H", "Cookie: a=b", "https://h"]) == ["-H", "Cookie: ***", "https://h"]
    assert masked_text("caf\udce9 " + SECRETS[0]) == "caf\udce9 ***"


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_time_is_linear(number: int) -> None:
    for pattern in (_literals().whole[number], _literals().open[number]):
        assert slow_text(re.compile(pattern.pattern), "match") is None


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_time_is_linear_for_repeated_literals(number: int) -> None:
    """Each literal causes a search by an expression."""
    for literal in SHAPES[number].literals:
        for tail in (b"", b"A", b"a" * 15, b"_-", b" "):
            text = (literal + tail) * (200_000 // len(literal + tail))
            begin = time.process_time()
            ShapeMask().masked(text)
            assert time.process_time() - begin < 5.0, (literal, tail)
