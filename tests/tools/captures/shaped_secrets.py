"""Secrets that their shape or a program's option reveals.

The module makes them at runtime, at random by their names, so that no scanner reports this file as
a leak.

PRINTED: output of jobs. WORDS: command lines. Each names its secret part.
"""

import base64
import json
import random
import string
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_DIGITS, _UPPER, _LOWER = string.digits, string.ascii_uppercase, string.ascii_lowercase
_ALNUM = _UPPER + _LOWER + _DIGITS
_HEX = "0123456789abcdef"
_URL64 = _ALNUM + "-_"
_B64 = _ALNUM + "+/"
_PIECE = 12  # so many bytes reveal a longer secret
_STEP = 6  # so that any 18 bytes contain a whole piece


class Printed(NamedTuple):
    """Output with a secret. name: of the shape; secret: the part to hide; text: the output, of
    several lines for a private key."""

    name: str
    secret: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


class Words(NamedTuple):
    """A command line and its secret part."""

    name: str
    secret: str
    argv: tuple[str, ...]


def random_text(name: str, alphabet: str, size: int) -> str:
    return "".join(random.Random(name).choices(alphabet, k=size))


def pieces(secret: str) -> list[str]:
    """Return the strings that reveal a secret: parts of a long one, the whole of a short one."""
    parts = [part for part in secret.split("\n") if part]
    if len(parts) > 1:
        return [piece for part in parts for piece in pieces(part)]
    last = len(secret) - _PIECE
    if last <= 0:
        return [secret]
    return [secret[at : at + _PIECE] for at in {*range(0, last, _STEP), last}]


def is_revealed(secret: str, text: str) -> bool:
    """Return whether a text contains enough of the secret to reveal it."""
    return any(piece in text for piece in pieces(secret))


def revealed(secrets: Iterable[Printed | Words], texts: Iterable[str]) -> list[str]:
    """Return the names of the secrets that any text contains, plain or with JSON's escapes."""
    displays = []
    for text in texts:
        displays += [text, text.replace("\\/", "/").replace("\\n", "\n").replace('\\"', '"')]
    return [
        secret.name
        for secret in secrets
        if any(is_revealed(secret.secret, display) for display in displays)
    ]


def _token(name: str, prefix: str, alphabet: str, size: int, *, form: str = "{}") -> Printed:
    body = random_text(name, alphabet, size)
    return Printed(name, body, form.format(prefix + body))


def _web_token() -> str:
    header, payload = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234", "name": "Ann", "iat": 1700})
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in (header, payload)
    ]
    return ".".join([*parts, random_text("JSON web token", _URL64, 43)])


def _key_text(label: str, lines: int = 12) -> tuple[str, str]:
    """Return the body of a PEM block, and the block."""
    body = "\n".join(random_text(f"{label}{line}", _B64, 64) for line in range(lines))
    body += "\n" + random_text(label, _B64, 21) + "="
    dashes = "-" * 5
    return body, f"{dashes}BEGIN {label}{dashes}\n{body}\n{dashes}END {label}{dashes}"


def _key(label: str) -> Printed:
    return Printed(f"private key: {label}", *_key_text(label))


def _plain(name: str, form: str, *, alphabet: str = _ALNUM, size: int = 20) -> Printed:
    body = random_text(name, alphabet, size)
    return Printed(name, body, form.format(body))


def _jwt() -> Printed:
    token = _web_token()
    return Printed("JSON web token", token.partition(".")[2], f"session {token} opened")


def _of_issue() -> Iterator[Printed]:
    """Yield one or more secrets for each required shape."""
    for kind in "pousr":
        yield _token(f"GitHub gh{kind}", f"gh{kind}_", _ALNUM, 36, form="remote said {} is old")
    yield Printed(
        "GitHub fine-grained",
        body := random_text("pat", _ALNUM, 22) + "_" + random_text("pat2", _ALNUM, 59),
        f"using github_pat_{body}",
    )
    yield _token("GitLab", "glpat-", _URL64, 20, form="login with {} worked")
    yield _token("Hugging Face", "hf_", _UPPER + _LOWER, 34, form="Login successful: {}")
    yield _token("OpenAI", "sk-", _ALNUM, 48, form="Incorrect API key provided: {}.")
    yield _token("OpenAI project", "sk-proj-", _URL64, 120, form="key {} is used")
    yield _token("Anthropic", "sk-ant-api03-", _URL64, 95, form="x {} y")
    yield _token("AWS key id", "AKIA", _UPPER + "234567", 16, form="caller {} of account 1")
    yield _token("AWS temporary key id", "ASIA", _UPPER + "234567", 16, form="caller={}")
    key_id = "AKIA" + random_text("beside", _UPPER + "234567", 16)
    secret = random_text("AWS secret beside an id", _B64, 40)
    yield Printed("AWS secret beside an id", secret, f"{key_id} {secret}")
    yield _token("Google API key", "AIza", _URL64, 35, form="maps key {} ok")
    yield _token("Google OAuth token", "ya29.", _URL64, 120, form="bearer is {}")
    account_key = random_text("Azure", _B64, 86)
    yield Printed(
        "Azure account key",
        account_key,
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={account_key}==;"
        "EndpointSuffix=core.windows.net",
    )
    signature = random_text("sig", _ALNUM, 40)
    yield Printed(
        "Azure signature",
        signature,
        f"PUT https://a.blob.core.windows.net/c/f?sv=2023-11-03&sr=c&sig={signature}%3D&se=2026",
    )
    bot = "-".join((random_text("b1", _DIGITS, 12), random_text("b2", _DIGITS, 12)))
    yield Printed(
        "Slack bot token", body := random_text("bot", _ALNUM, 24), f"token: xoxb-{bot}-{body}"
    )
    yield Printed("Slack user token", body := random_text("u", _HEX, 32), f"as xoxp-{bot}-{body}")
    yield Printed(
        "Slack webhook",
        body := random_text("hook", _ALNUM, 24),
        f"POST https://hooks.slack.com/services/T{bot[:9]}/B{bot[2:11]}/{body} 200",
    )
    yield _token("Stripe", "sk_live_", _ALNUM, 24, form="charge with {}")
    yield _token("Stripe restricted", "rk_live_", _ALNUM, 99, form="charge with {}")
    yield _token("npm", "npm_", _ALNUM, 36, form="npm notice {} published")
    yield _token("PyPI", "pypi-AgEIcHlwaS5vcmc", _URL64, 150, form="Uploading with {}")
    yield _token("Docker", "dckr_pat_", _URL64, 27, form="Login: {}")
    yield _token("DigitalOcean", "dop_v1_", _HEX, 64, form="doctl {}")
    yield _token("Databricks", "dapi", _HEX, 32, form="cluster {} started")
    yield _plain("Weights & Biases", "wandb login {}", alphabet=_HEX, size=40)
    yield _plain("Weights & Biases by name", "WANDB_API_KEY={}", alphabet=_HEX, size=40)
    yield _jwt()
    for label in ("RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY"):
        yield _key(label)
    yield _plain("credentials in a URL", "cloning https://ann:{}@git.example.org/x.git ...")
    yield _plain("credentials of a database", "connect postgresql://ann:{}@db.example.org:5432/x")
    yield _plain("Authorization header", "> Authorization: Basic {}==", size=22)
    yield _plain("bearer header", "> authorization: Bearer {}", size=40)
    yield _plain("Proxy-Authorization header", "> Proxy-Authorization: Digest u={}")
    yield _plain("Cookie header", "> Cookie: theme=dark; sid={}; a=b", size=32)
    yield _plain("Set-Cookie header", "< Set-Cookie: sid={}; Path=/; HttpOnly", size=32)
    yield _plain("X-Api-Key header", "> X-Api-Key: {}", size=32)
    yield _plain(
        "signature of AWS",
        "GET https://b.s3.amazonaws.com/o?X-Amz-Date=20260101T000000Z&X-Amz-Signature={}",
        alphabet=_HEX,
        size=64,
    )
    yield _plain(
        "signature of Google",
        "GET https://storage.googleapis.com/b/o?X-Goog-Signature={}&x=1",
        alphabet=_HEX,
        size=128,
    )
    yield _plain(
        "signature of CloudFront",
        "https://d1.cloudfront.net/a.bin?Expires=1700000000&Signature={}__&Key-Pair-Id=K",
        alphabet=_ALNUM,
        size=80,
    )
    yield _plain("netrc line", "machine git.example.org login ann password {}")


def _own() -> Iterator[Printed]:
    """Yield further kinds and surroundings of the same shapes."""
    yield _token("GitLab runner", "glrt-", _URL64, 20, form="Registered {}")
    yield _token("GitLab deploy", "gldt-", _URL64, 20, form="Deploy {}")
    yield _token("Hugging Face organisation", "api_org_", _UPPER + _LOWER, 34, form="org {}")
    yield _token("OpenAI service account", "sk-svcacct-", _URL64, 120, form="'{}'")
    yield Printed(
        "OpenAI of 2023",
        body := random_text("a", _ALNUM, 20) + "T3BlbkFJ" + random_text("b", _ALNUM, 20),
        f"OpenAI({'sk-' + body})",
    )
    yield _token("Anthropic admin", "sk-ant-admin01-", _URL64, 95, form='"{}",')
    yield _plain(
        "Slack app token", "socket xapp-1-A01ABCDEFGH-123456789012-{}", alphabet=_HEX, size=64
    )
    yield _token("Slack refresh token", "xoxe-1-", _ALNUM, 140, form="{}")
    yield _plain(
        "Slack workflow",
        "POST https://hooks.slack.com/workflows/T01ABCDEF/A01ABCDEF/4567890123/{} 200",
        size=24,
    )
    yield _token("Stripe webhook", "whsec_", _ALNUM, 32, form="signing {}")
    yield _token("Stripe test key", "sk_test_", _ALNUM, 24, form="sandbox {}")
    yield _token("DigitalOcean OAuth", "doo_v1_", _HEX, 64, form="x={}")
    yield _token("Docker organisation", "dckr_oat_", _URL64, 32, form="{}")
    yield _plain("npm configuration", "//registry.npmjs.org/:_authToken={}", size=36)
    yield _plain("npm configuration of old", "//npm.example.org/:_auth={}=", size=31)
    yield _plain(
        "Docker configuration",
        '"auths": {{"https://index.docker.io/v1/": {{"auth": "{}="}}}}',
        size=39,
    )
    yield _plain(
        "Azure service bus",
        "Endpoint=sb://a.example.org/;SharedAccessKey={}=",
        alphabet=_B64,
        size=43,
    )
    yield _plain("AWS secret by name", "aws_secret_access_key = {}", alphabet=_B64, size=40)
    key_id = "ASIA" + random_text("json", _UPPER + "234567", 16)
    secret = random_text("AWS secret in JSON", _B64, 40)
    yield Printed(
        "AWS secret in JSON",
        secret,
        f'{{"AccessKeyId": "{key_id}", "SecretAccessKey": "{secret}", "Expiration": "x"}}',
    )
    yield _plain("AWS session token", "X-Amz-Security-Token={}&x=1", alphabet=_ALNUM, size=200)
    yield _plain(
        "AWS signature header",
        "Authorization: AWS4-HMAC-SHA256 Credential=a, Signature={}",
        alphabet=_HEX,
        size=64,
    )
    yield _plain("Google OAuth secret", "client GOCSPX-{}", alphabet=_URL64, size=28)
    yield _plain("private-token header", "> PRIVATE-TOKEN: {}", size=26)
    yield _plain("header in Python", "headers={{'Cookie': 'sid={}'}}", size=32)
    yield _plain("header in JSON", '{{"headers": {{"X-API-KEY": "{}"}}}}', size=32)
    yield _plain(
        "W&B in netrc", "machine api.wandb.ai login user password {}", alphabet=_HEX, size=40
    )
    yield _plain(
        "signature of an Azure token", "SharedAccessSignature sr=x&sig={}%3d&se=1", size=43
    )
    yield _plain("MongoDB", "mongodb+srv://ann:{}@c.example.org/?w=1")
    yield _plain("Redis without a user", "redis://:{}@cache.example.org:6379/0")
    yield _plain("password with an at sign", "https://ann:p@{}@example.org/")
    yield _plain("token as a URL's user", "https://x-access-token:{}@github.com/o/r.git", size=40)
    yield _plain("token in a URL alone", "remote: https://{}@git.example.org/o/r.git", size=40)
    for label in ("ENCRYPTED PRIVATE KEY", "DSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"):
        yield _key(label)
    body = random_text("service account", _B64, 200)
    dashes = "-" * 5
    yield Printed(
        "key in JSON",
        body,
        f'{{"type": "service_account", "private_key": "{dashes}BEGIN PRIVATE KEY{dashes}\\n'
        + "\\n".join(body[at : at + 64] for at in range(0, 200, 64))
        + f'\\n{dashes}END PRIVATE KEY{dashes}\\n"}}',
    )
    url = random_text("escaped slashes", _ALNUM, 20)
    yield Printed(
        "URL with JSON's slashes", url, f'{{"url": "https:\\/\\/ann:{url}@x.example.org"}}'
    )
    yield _plain("quoted", "token='ghp_{}'", size=36)
    yield _plain("in brackets", "[ghp_{}]", size=36)
    yield _plain("after an equals sign", "GH=ghp_{}", size=36)
    yield _plain("after a letter's dot", "x.ghp_{}.y", size=36)
    yield _plain("before a comma", "a,ghp_{},b", size=36)
    yield _plain("URL encoded", "q=%22ghp_{}%22", size=36)


BY_NAME = (  # not hidden in output: a name alone counts on command lines only
    _plain("assignment", "db_password={}"),
    _plain("assignment in JSON", '{{"api_key": "{}", "lr": 0.1}}'),
)
OF_ISSUE = tuple(_of_issue())
OWN = tuple(_own())
PRINTED = (*OF_ISSUE, *OWN)


def _argv(name: str, *form: str, size: int = 16, alphabet: str = _ALNUM) -> Words:
    secret = random_text(f"words {name}", alphabet, size)
    return Words(name, secret, tuple(word.replace("PW", secret) for word in form))


WORDS = (
    _argv("--wandb-key", "train", "--wandb-key", "PW", "--lr", "0.1", size=40, alphabet=_HEX),
    _argv("--key", "train", "--key", "PW"),
    _argv("--key=", "train", "--key=PW"),
    _argv("--pat", "train", "--pat", "PW"),
    _argv("--pin", "train", "--pin", "PW", size=6, alphabet=_DIGITS),
    _argv("--cookie", "curl", "--cookie", "sid=PW"),
    _argv("--license-key", "train", "--license-key", "PW"),
    _argv("--license", "train", "--license", "PW"),
    _argv("--sig", "train", "--sig", "PW"),
    _argv("--signature", "train", "--signature=PW"),
    _argv("--webhook", "train", "--webhook", "https://example.org/PW"),
    _argv("--slack_webhook", "train", "--slack_webhook", "https://example.org/PW"),
    _argv("--hf-token", "train", "--hf-token", "hf_PW", size=34),
    _argv("curl -u", "curl", "-s", "-u", "alice:PW", "https://example.org"),
    _argv("curl -uUSER", "curl", "-ualice:PW", "https://example.org"),
    _argv("curl --user", "curl", "--user", "alice:PW", "https://example.org"),
    _argv("curl --user=", "curl", "--user=alice:PW", "https://example.org"),
    _argv("curl -U", "curl", "-U", "alice:PW", "https://example.org"),
    _argv("curl --proxy-user", "curl", "--proxy-user", "alice:PW", "https://example.org"),
    _argv("curl -su", "curl", "-su", "alice:PW", "https://example.org"),
    _argv("curl of a path", "/usr/bin/curl", "-u", "alice:PW", "https://example.org"),
    _argv("curl -b", "curl", "-b", "sid=PW", "https://example.org"),
    _argv("curl -H Cookie", "curl", "-H", "Cookie: sid=PW", "https://example.org"),
    _argv("curl -H x-api-key", "curl", "-H", "x-api-key: PW", "https://example.org"),
    _argv("curl -H Authorization", "curl", "-HAuthorization: Bearer PW", "https://example.org"),
    _argv("curl --oauth2-bearer", "curl", "--oauth2-bearer", "PW", "https://example.org"),
    _argv("mysql -p", "mysql", "-u", "root", "-pPW", "db"),
    _argv("mysqldump -p", "mysqldump", "-pPW", "db"),
    _argv("mysql --password", "mysql", "--password=PW", "db"),
    _argv("sshpass -p", "sshpass", "-p", "PW", "ssh", "host"),
    _argv("sshpass -pPW", "sshpass", "-pPW", "ssh", "host"),
    _argv("docker login -p", "docker", "login", "-u", "ann", "-p", "PW", "example.org"),
    _argv("docker login --password", "docker", "login", "--password", "PW"),
    _argv("podman login -p", "podman", "login", "-p", "PW", "example.org"),
    _argv("redis-cli -a", "redis-cli", "-h", "x", "-a", "PW", "ping"),
    _argv("redis-cli --pass", "redis-cli", "--pass", "PW", "ping"),
    _argv("ldapsearch -w", "ldapsearch", "-D", "cn=a", "-w", "PW", "-b", "dc=x"),
    _argv("wget --password", "wget", "--user=ann", "--password=PW", "https://example.org"),
    _argv("wget --http-password", "wget", "--http-password", "PW", "https://example.org"),
    _argv("smbclient -U", "smbclient", "//h/s", "-U", "ann%PW"),
    _argv("smbclient -U together", "smbclient", "//h/s", "-Uann%PW"),
    _argv("env before", "env", "PGPASSWORD=PW", "psql"),
    _argv("env curl", "env", "A=1", "curl", "-u", "alice:PW", "https://example.org"),
    _argv("sudo mysql", "sudo", "mysql", "-pPW", "db"),
    _argv("sh -c curl", "sh", "-c", "true; curl -s -u alice:PW https://example.org | cat"),
    _argv("sh -c mysql", "bash", "-lc", "mysql -uroot -pPW db < x.sql"),
    _argv("sh -c sshpass", "sh", "-c", "sshpass -p 'PW' ssh host"),
    _argv("sh -c docker", "sh", "-c", "cd x && docker login -u a -p PW example.org && make"),
    _argv("sh -c redis", "sh", "-c", "redis-cli -a PW ping"),
    _argv("sh -c header", "sh", "-c", 'curl -H "Cookie: sid=PW" https://example.org'),
    _argv("sh -c --pat", "sh", "-c", "train --pat PW --lr 0.1"),
    _argv("sh -c bare token", "sh", "-c", "echo ghp_PW | gh auth login", size=36),
    _argv("bare GitHub token", "train", "ghp_PW", size=36),
    _argv("bare Hugging Face token", "train", "hf_PW", size=34, alphabet=_UPPER + _LOWER),
    _argv("bare OpenAI key", "train", "sk-PW", size=48),
    _argv("bare AWS key id", "train", "AKIAPW", size=16, alphabet=_UPPER + "234567"),
    _argv("wandb login", "wandb", "login", "PW", size=40, alphabet=_HEX),
    _argv("wandb login of Python", "python", "-m", "wandb", "login", "PW", size=40, alphabet=_HEX),
    _argv("S3 signature", "wget", "https://b.example.org/o?X-Amz-Signature=PW", size=64, alphabet=_HEX),
    _argv("SAS", "azcopy", "cp", "x", "https://a.example.org/c?sv=1&sig=PW%3D", size=43),
    _argv("webhook of Slack", "curl", "-d", "{}", "https://hooks.slack.com/services/T0000/B0000/PW", size=24),
    _argv("URL credentials", "git", "clone", "https://ann:PW@git.example.org/x"),
    _argv("AWS secret beside an id", "aws", "AKIAABCDEFGHIJKLMNOP", "PW", size=40, alphabet=_B64),
    _argv("http -a", "http", "-a", "ann:PW", "example.org"),
    _argv("psql URL", "psql", "postgresql://ann:PW@db/x"),
    _argv("openssl -passin", "openssl", "rsa", "-passin", "pass:PW", "-in", "k"),
    _argv("7z -p", "7z", "x", "-pPW", "a.7z"),
    _argv("zip -P", "zip", "-P", "PW", "a.zip", "x"),
    _argv("rclone", "rclone", "--sftp-pass", "PW", "ls", "x:"),
    _argv("mongo -p", "mongosh", "-u", "ann", "-p", "PW"),
    _argv("helm registry login", "helm", "registry", "login", "-u", "a", "-p", "PW", "example.org"),
    _argv("az login -p", "az", "login", "--service-principal", "-u", "a", "-p", "PW"),
    _argv("huggingface-cli login", "huggingface-cli", "login", "--token", "PW"),
)  # fmt: skip
SHOWN_WORDS = (  # command lines without secrets, word by word
    ("python", "train.py", "--lr", "0.1", "--pattern", "x", "--pin-memory", "1"),
    ("python", "-u", "train.py", "-p", "8080", "-a", "x", "-w", "4", "-U", "x"),
    ("make", "-j8", "-pn", "all"),
    ("mkdir", "-p", "out/run"),
    ("ssh", "-p", "2222", "host"),
    ("docker", "run", "-p", "8080:80", "image"),
    ("git", "checkout", "0123456789abcdef0123456789abcdef01234567"),
    ("pip", "install", "--hash=sha256:" + "0123456789abcdef" * 4, "torch==2.3.0"),
    ("tar", "-xpf", "a.tar", "--keep-old-files"),
    ("curl", "-s", "-o", "out", "https://example.org/user:x"),
)
