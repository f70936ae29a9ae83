"""Masks by shape (R33) change neither the output of real programs (tests/harmless), nor hashes,
ids, numbers and images that resemble secrets."""

import base64
import hashlib
import json
import lzma
import random
import uuid
from collections.abc import Callable, Iterator

import pytest

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.spool.segment import Stream
from tests.tools.sources import ROOT

FOLDER = ROOT / "tests" / "harmless"
LOGS = sorted(path.name.removesuffix(".txt.xz") for path in FOLDER.glob("*.txt.xz"))
LEAST_LINES = 100_000
MOST_MASKED = 1  # lines of all logs together
CHUNK_BYTES = 10_007
GENERATED = 3000  # lines of each kind


def read(name: str) -> bytes:
    return lzma.decompress((FOLDER / f"{name}.txt.xz").read_bytes())


def logged(data: bytes, *, mask: bool, stream: Stream = Stream.STDOUT) -> list[bytes]:
    classifier = Classifier("enabled", mask=mask)
    lines: list[bytes] = []
    for at in range(0, len(data), CHUNK_BYTES):
        classifier.feed(stream, data[at : at + CHUNK_BYTES], at / 1e6)
    classifier.end(stream, len(data) / 1e6)
    for item in classifier.take():
        if isinstance(item, LoggedLines):
            lines += item.text.splitlines()
    return lines


def masked(data: bytes) -> list[bytes]:
    """Return the lines that masks change, in their original form."""
    plain, shown = logged(data, mask=False), logged(data, mask=True)
    assert len(plain) == len(shown)
    return [before for before, after in zip(plain, shown, strict=True) if before != after]


def test_logs_of_real_programs_stay_as_they_are() -> None:
    assert len(LOGS) >= 20
    contents = {name: read(name) for name in LOGS}
    assert sum(content.count(b"\n") for content in contents.values()) >= LEAST_LINES
    changed = {name: lines for name in LOGS if (lines := masked(contents[name]))}
    assert sum(map(len, changed.values())) <= MOST_MASKED, changed


Make = Callable[[random.Random], str]


def _hex(size: int) -> Make:
    return lambda draw: draw.randbytes(size // 2).hex()


def _base64(draw: random.Random) -> str:
    return base64.b64encode(draw.randbytes(draw.randrange(10, 300))).decode()


KINDS: dict[str, Make] = {
    "MD5": _hex(32),
    "SHA-1": _hex(40),
    "SHA-256": _hex(64),
    "SHA-512": _hex(128),
    "capitals": lambda draw: draw.randbytes(20).hex().upper(),
    "UUID": lambda draw: str(uuid.UUID(int=draw.getrandbits(128), version=4)),
    "UUID without dashes": lambda draw: uuid.UUID(int=draw.getrandbits(128), version=4).hex,
    "a long number": lambda draw: str(draw.randrange(10**29, 10**30)),
    "a float": lambda draw: repr(draw.random() * 10 ** draw.randrange(-30, 30)),
    "base64": _base64,
    "a wheel's record": lambda draw: base64.urlsafe_b64encode(
        hashlib.sha256(draw.randbytes(8)).digest()
    ).decode()[:-1],
    "npm's integrity": lambda draw: base64.b64encode(
        hashlib.sha512(draw.randbytes(8)).digest()
    ).decode(),
    "an address": lambda draw: hex(draw.getrandbits(64)),
}
FORMS = (
    "{}", "commit {}", "  {}  train.py", "sha256:{}", "--hash=sha256:{}", "image@sha256:{} pulled",
    "id={}", "run {}: ok", "epoch 3 seed {} loss 0.1", '{{"digest": "{}", "n": 1}}', "{}.whl",
    "model-{}.ckpt", "https://example.org/o/{}?v=1", "[{}] token_count=3", "blob {}", 'etag: "{}"',
    "Downloading x-1.0-py3-none-any.whl#sha256={}", "container {} exited", "integrity sha512-{}",
    "a,b,sha256={},1234", "data:image/png;base64,{}", "fingerprint SHA256:{}", "key {} of layer 3",
    "author {} <>", "0x{}", "{}/{}",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_secret_stays_as_it_is(kind: str) -> None:
    draw = random.Random(kind)
    lines = []
    for number in range(GENERATED):
        texts = [KINDS[kind](draw) for _ in range(2)]
        lines.append(FORMS[number % len(FORMS)].format(*texts))
    assert masked("\n".join(lines).encode() + b"\n") == []


def test_an_image_in_lines_of_a_notebook_stays_as_it_is() -> None:
    draw = random.Random("image")
    for size in (76, 64, 4000):
        text = base64.b64encode(draw.randbytes(60_000)).decode()
        lines = [text[at : at + size] for at in range(0, len(text), size)]
        assert masked("\n".join(lines).encode() + b"\n") == []
        notebook = json.dumps({"image/png": "\n".join(lines)})
        assert masked(notebook.encode() + b"\n") == []


def sentences() -> Iterator[str]:
    """Yield lines with words that occur both in names of secrets and in texts of machine
    learning."""
    yield from (
        "tokens per second: 51200",
        "total_tokens=4096 token_accuracy=0.5 tokenizer=BPE",
        "special_tokens={'bos_token': '<s>', 'eos_token': '</s>'}",
        "attention key: torch.Size([8, 12, 64])",
        "key_padding_mask=None, key=value",
        "KeyError: 'loss'",
        "sort by key, then by value",
        "primary key (id)",
        "pin_memory=True, pin_memory_device=''",
        "signature: (x: int) -> int",
        "the sig= argument is deprecated",
        "password: ",
        "Enter passphrase (empty for no passphrase):",
        "Permission denied (publickey,password).",
        "cookie jar is empty",
        "Authorization required",
        "sk-learn 1.4, sk-image 0.22",
        "task-sk-1, disk-size 20, risk-aware-and-very-long-name-of-something",
        "hf_hub_download('bert-base-uncased', 'config.json')",
        "hf_transfer is installed, hf_xet isn't",
        "ghp_ is how a token begins",
        "user@host: ~$ ssh ann@example.org",
        "git@github.com:owner/name.git",
        "https://github.com/owner/name.git",
        "mail ann@example.org, see https://example.org/a:b@c",
        "npm_config_cache=/tmp/npm npm_package_name=x npm_lifecycle_event=build",
        "pypi-publish, pypi-server 1.5",
        "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI" + "a" * 43 + " me@node1",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
        "machine gpu01 login ok",
        "AccountKey not set",
        "Docker version 24.0.7, dckr",
        "eyJ is how a JSON web token begins",
    )


def test_words_of_names_stay_as_they_are() -> None:
    assert masked("\n".join(sentences()).encode() + b"\n") == []
