"""The table of secret shapes: tokens, keys and credentials that their own text gives away. Pure data.

docs/masks.md lists the shapes and their limits; logshipper/masks/shape_mask.py finds them.
"""

from logshipper.named_tuple import NamedTuple

_ALNUM = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
NAME_BYTES = _ALNUM | frozenset(b"_-")
AWS_KEY_ID, AWS_SECRET, NETRC = "AWS key id", "AWS secret", "netrc password"
URL_CREDENTIALS, PRIVATE_KEY = "credentials in an address", "private key"


class Shape(NamedTuple):
    """One kind of secret. Expressions are regular expressions of bytes."""

    name: str
    literals: tuple[bytes, ...]  # every secret of the shape holds or follows one of these
    alphabet: bytes  # a character class: the bytes of the secret behind the literal
    least: int  # how many of them
    between: bytes = b""  # an expression for readable text between the literal and the secret
    check: bytes = b""  # a condition at the secret's begin
    apart_from: frozenset[int] = _ALNUM  # bytes that do not stand before the literal
    keeps_literal: bool = False  # the literal is a name, and stays readable
    shared: bytes = b""  # each secret's text holds it: without it no literal is searched for


def _words(text: bytes) -> tuple[bytes, ...]:
    return tuple(text.split())


def _named(
    name: str,
    literals: tuple[bytes, ...],
    between: bytes,
    alphabet: bytes,
    least: int,
    check: bytes = b"",
    shared: bytes = b"",
) -> Shape:
    """A secret that follows its name."""
    return Shape(name, literals, alphabet, least, between, check, frozenset(), True, shared)


_WORD = rb"[A-Za-z0-9]"
_NAME = rb"[A-Za-z0-9_-]"
_BASE64 = rb"[A-Za-z0-9+/=]"
_QUOTE = rb"\\?[\"']?"  # JSON in JSON escapes it
_IS = _QUOTE + rb"[ \t]{0,3}[:=][ \t]{0,3}" + _QUOTE  # between a name and its value
_TEXT = rb"[^\"'\r\n\\]"  # to the closing quote or the end of the line
_SCHEMES = (
    rb"(?:AWS4-HMAC-SHA256|ApiKey|Basic|Bearer|Digest|Negotiate|Token|apikey|basic|bearer|token)"
)

SHAPES = (
    Shape(
        "GitHub token",
        _words(b"ghp_ gho_ ghu_ ghs_ ghr_ github_pat_"),
        rb"[A-Za-z0-9_]",
        20,
        apart_from=frozenset(),
    ),
    Shape(
        "GitLab token",
        _words(b"glpat- gldt- glrt- glptt- glcbt- glft- glimt- glagent- glsoat- glffct-"),
        rb"[A-Za-z0-9_.=-]",
        16,
        shared=b"t-",
    ),
    Shape("Hugging Face token", (b"hf_", b"api_org_"), _WORD, 30),
    Shape("OpenAI key", (b"sk-",), _WORD, 20),
    Shape(
        "OpenAI key", _words(b"sk-proj- sk-svcacct- sk-admin- sk-or-v1-"), _NAME, 20, shared=b"sk-"
    ),
    Shape("Anthropic key", (b"sk-ant-",), _NAME, 20, shared=b"sk-"),
    Shape(
        AWS_KEY_ID,
        _words(b"AKIA ASIA ABIA ACCA"),
        rb"[A-Z0-9]",
        16,
        check=rb"(?=[A-Z0-9]{16}(?![A-Za-z0-9]))",
    ),
    _named(
        AWS_SECRET,
        _words(
            b"ecret_access_key ECRET_ACCESS_KEY ecretAccessKey ession_token"
            b" ESSION_TOKEN essionToken"
        ),
        _IS,
        _BASE64,
        16,
    ),
    Shape("Google key", (b"AIza",), _NAME, 35),
    Shape("Google token", (b"ya29.",), rb"[A-Za-z0-9_.-]", 20),
    Shape("Google secret", (b"GOCSPX-",), _NAME, 20),
    _named("Azure key", (b"AccountKey=", b"SharedAccessKey="), b"", _BASE64, 20),
    Shape(
        "Slack token",
        _words(b"xoxa- xoxb- xoxe- xoxe.xox xoxo- xoxp- xoxr- xoxs- xapp-"),
        rb"[A-Za-z0-9.-]",
        11,
    ),
    *(
        _named(
            "Slack webhook",
            (b"hooks.slack.com",),
            rb"(?::443)?\\?/",
            rb"[A-Za-z0-9+/_\\-]",
            16,
            shared=workspace,
        )
        for workspace in (b"T", b"E")  # begins the id in each path
    ),
    _named("webhook", (b"/api/webhooks/", b"/webhookb2/"), b"", rb"[A-Za-z0-9@/_-]", 20),
    Shape("Stripe key", _words(b"sk_live_ sk_test_ rk_live_ rk_test_ whsec_"), _WORD, 10),
    Shape("npm token", (b"npm_",), _WORD, 30),
    _named("Docker login", (b'"auth',), _IS, _BASE64, 12),
    _named("npm token", (b"_auth",), rb"(?:Token)? ?= ?[\"']?", rb"[A-Za-z0-9+/=_-]", 16),
    Shape("PyPI token", (b"pypi-AgE",), _NAME, 10),
    Shape("PyPI token", (b"pypi-",), _NAME, 60),
    Shape("Docker token", (b"dckr_pat_", b"dckr_oat_"), _NAME, 16),
    Shape("DigitalOcean token", _words(b"dop_v1_ doo_v1_ dor_v1_"), rb"[a-f0-9]", 32),
    Shape(
        "Databricks token", (b"dapi",), rb"[a-f0-9-]", 32, check=rb"(?=[a-f0-9]{32}(?![g-zA-Z]))"
    ),
    Shape("Weights & Biases key", (b"wandb_v1_",), _NAME, 20),
    _named(
        "Weights & Biases key",
        _words(b"wandb WANDB WandB login"),
        rb"[\w.]{0,40}(?:[ \t]{1,3}login)?(?:[ \t]{1,3}--?[\w=-]{1,60}){0,3}(?:\([a-z_]{0,20})?"
        rb"(?:[\"']?[ \t]{0,3}[:=(][ \t]{0,3}|[ \t]{1,3})[\"']?",
        rb"[a-f0-9]",
        40,
        rb"(?=[a-f0-9]{40}(?![A-Za-z0-9]))",
    ),
    Shape(
        "JSON web token",
        (b"eyJ",),
        rb"[A-Za-z0-9_.-]",
        20,
        check=rb"(?=[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{4,})",
        apart_from=NAME_BYTES,
    ),
    Shape("age key", (b"AGE-SECRET-KEY-1",), rb"[A-Z0-9]", 30),
    _named(
        "authorization header",
        (b"uthorization", b"UTHORIZATION"),
        _IS + _SCHEMES + rb"[ \t]{1,3}",
        _TEXT,
        4,
    ),
    _named("authorization header", (b"uthorization", b"UTHORIZATION"), _IS, rb"[^\s\"'\\,;]", 16),
    _named(
        "cookie header",
        (b"ookie:", b"OOKIE:", b'ookie":', b"ookie':", b'ookie\\":'),
        rb"[ \t]{0,3}" + _QUOTE + rb"(?=[^\"'\r\n\\ =]{1,200}=)",
        _TEXT,
        3,
        shared=b"=",
    ),
    _named(
        "API key header",
        _words(
            b"pi-Key pi-key PI-KEY PI-Key uth-Token uth-token ault-Token"
            b" rivate-Token RIVATE-TOKEN ecurity-Token"
        ),
        _QUOTE + rb"[ \t]{0,3}:[ \t]{0,3}" + _QUOTE,
        rb"[^\s\"'\\,;]",
        8,
    ),
    _named(
        "signature in an address",
        _words(b"ignature= ?sig= &sig= 026sig= ;sig= ecurity-Token="),
        b"",
        rb"[A-Za-z0-9%+/=_~-]",
        16,
    ),
    _named(
        NETRC,
        (b"machine ", b"machine\t"),
        rb"\s{0,9}[A-Za-z0-9.:_-]{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}"
        rb"(?:account\s{1,9}\S{1,200}\s{1,9})?password\s{1,9}[\"']?",
        rb"[^\s\"'\\]",
        1,
        shared=b"login",
    ),
)
