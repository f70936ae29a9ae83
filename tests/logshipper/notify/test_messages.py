"""Messages of captured commands, to real receivers."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.notify import sender
from logshipper.notify.orders import SEND_SECS
from tests.logshipper.notify.receivers import HttpReceiver, MailReceiver, Script
from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.waiting import scaled

WORD = "k3yOfTheHook-0123456789"
FAILING = """
import sys
print('{"epoch": 1, "loss": 0.5, "name": "x"}')
print('{"epoch": 2, "loss": 0.25}')
print("one\\ntwo: no such layer", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def http() -> Iterator[HttpReceiver]:
    with HttpReceiver().serving() as receiver:
        yield receiver


def secret_file(home: Home, *lines: str) -> str:
    path = home.folder / "targets"
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o600)
    return f"file:{path}"


def failures(home: Home) -> list[str]:
    """Return the messages of the last job's events about failed messages."""
    events = home.show()["events"]
    return [event["message"] for event in events if event["event"] == "notification_failed"]


def await_failures(home: Home, count: int = 1) -> list[str]:
    wait_until(lambda: len(failures(home)) >= count, "events of failed messages")
    return failures(home)


def python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


def test_a_failure_is_reported_over_http(home: Home, http: HttpReceiver) -> None:
    target = f"json://127.0.0.1:{http.port}/"
    result = home.run(*python(FAILING), options=("--notify", target, "--name", "train"))
    ended_at = time.monotonic()
    assert result.returncode == 3
    message = http.await_message()
    assert time.monotonic() - ended_at < scaled(10.0)
    job_id = home.show()["job_id"]
    assert message["title"] == f"train ({job_id}): FAILED, exit code 3"
    for part in (
        f"job: train, {job_id}, on {os.uname().nodename}",
        "state: FAILED, after ",
        "last values: epoch 2, loss 0.25",
        f"show it: logshipper show {job_id}",
        "last lines of standard error:\n  one\n  two: no such layer",
    ):
        assert part in message["message"]
    assert "page:" not in message["message"]
    assert not failures(home)


def test_a_mail_goes_by_smtp(home: Home) -> None:
    with MailReceiver().serving() as mail:
        target = f"mailto://127.0.0.1:{mail.port}?from=job@example.org&to=me@example.org"
        assert home.run("true", options=("--notify", target)).returncode == 0
        wait_until(lambda: mail.mails, "a mail")
    job_id = home.show()["job_id"]
    assert f"Subject: true ({job_id}): COMPLETED, exit code 0" in mail.mails[0]
    assert "To: me@example.org" in mail.mails[0]


def test_a_command_gets_the_message_on_its_input(home: Home, script: Script) -> None:
    home.opt_in(f"notify: 'cmd:{script.path} end'\n".encode())
    assert home.run("true").returncode == 0
    (message,) = script.await_messages()
    job_id = home.show()["job_id"]
    first = f"end|{job_id}|end\ntrue ({job_id}): COMPLETED, exit code 0\n\njob: true, {job_id}"
    assert message.startswith(first)


def test_a_desktop_shows_no_printed_line(home: Home, tmp_path: Path) -> None:
    program = Script(tmp_path, "notify-send")
    home.environment["PATH"] = f"{tmp_path}:{home.environment['PATH']}"
    home.run(*python(FAILING), options=("--notify", "desktop"))
    (message,) = program.await_messages()
    assert "FAILED, exit code 3" in message
    assert "layer" not in message


def test_kinds_that_on_leaves_out_are_not_sent(home: Home, script: Script) -> None:
    """The failure that follows is the first message."""
    home.opt_in(f"notify: {{to: 'cmd:{script.path}', on: [failure]}}\n".encode())
    home.run("true")
    home.run("false")
    (message,) = script.await_messages()
    assert message.startswith("failure|")


def test_nan_is_reported_once(home: Home, script: Script) -> None:
    code = 'for n in range(3): print(\'{"step": %d, "loss": NaN}\' % n)'
    home.opt_in(f"notify: {{to: 'cmd:{script.path}', on: nan}}\n".encode())
    home.run(*python(code))
    (message,) = script.await_messages()
    assert "NaN or an infinity in loss" in message


@pytest.mark.parametrize(
    ("mode", "has_values"), [("enabled", True), ("metadata", True), ("disabled", False)]
)
def test_lines_are_sent_in_mode_enabled_only(
    home: Home, script: Script, mode: str, has_values: bool
) -> None:
    home.run(*python(FAILING), options=("--notify", f"cmd:{script.path}", "--mode", mode))
    (message,) = script.await_messages()
    assert ("no such layer" in message) == (mode == "enabled")
    assert ("loss 0.25" in message) == has_values


def test_lines_are_masked_and_those_before_a_narrower_mode_are_not_sent(
    home: Home, script: Script
) -> None:
    token = "ghp_" + "a1B2" * 9
    code = f"import sys; print('token is {token}', file=sys.stderr); sys.exit(1)"
    home.run(*python(code), options=("--notify", f"cmd:{script.path}"))
    (message,) = script.await_messages()
    assert "token is ***" in message
    code = (
        "import sys; print('before', file=sys.stderr, flush=True)\n"
        'print(\'/LOGCOMMAND {"mode":"metadata"}\', flush=True); sys.exit(1)'
    )
    home.run(*python(code), options=("--notify", f"cmd:{script.path}"))
    assert "before" not in script.await_messages(2)[1]


def test_a_hanging_target_costs_the_job_nothing(home: Home, script: Script) -> None:
    with HttpReceiver(answer=None).serving() as hanging:
        targets = secret_file(
            home, f"json://127.0.0.1:{hanging.port}/{WORD}", f"cmd:sleep 98765 # {WORD}"
        )
        options = ("--notify", targets, "--notify", f"cmd:{script.path}")
        begin = time.monotonic()
        result = home.run("sh", "-c", "exit 4", options=options)
        secs = time.monotonic() - begin
        assert result.returncode == 4
        assert hanging.asked.wait(scaled(60.0))
        # nowhere on any command line, meanwhile
        assert WORD not in command_lines()
        assert script.await_messages()
        both = await_failures(home, 2)
    assert secs < SEND_SECS or secs < scaled(SEND_SECS) / 2
    assert any(f"no message `failure` to {targets} (json): " in text for text in both)
    assert f"no message `failure` to {targets} (cmd): no answer within 8 s" in both
    wait_until(lambda: "98765" not in command_lines(), "the end of the target's command")
    assert WORD.encode() not in home.stored_bytes()


def command_lines() -> str:
    command = ["ps", "-eww", "-o", "args="]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_a_failed_message_is_an_event_without_the_secret(home: Home) -> None:
    with HttpReceiver(answer=500).serving() as broken:
        home.environment["HOOK"] = f"json://127.0.0.1:{broken.port}/{WORD}"
        targets = secret_file(home, f"cmd:echo {WORD} >&2; exit 5", "https_proxy=" + WORD)
        result = home.run("true", options=("--notify", "env:HOOK", "--notify", targets))
        assert result.returncode == 0
        texts = sorted(await_failures(home, 2))
    assert "(cmd): exit code 5: ***" in texts[1]
    assert "env:HOOK (json): " in texts[0]
    assert "500" in texts[0]
    assert WORD.encode() not in home.stored_bytes() + result.stderr
    assert not home.call("show", "last").stdout.count(WORD.encode())


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("nonsense", "target 1 is wrong; a target is `desktop`, `cmd:COMMAND`"),
        ("foo://bar", "foo: Apprise does not know this form of address"),
        (f"json://me:{WORD}@localhost", "json: the address holds a secret"),
        ("cmd:no-such-program x", "cmd: there is no program no-such-program"),
        ("file:/no/such/file", "file:/no/such/file: cannot be read: No such file"),
        ("env:NO_SUCH_NAME", "env:NO_SUCH_NAME: the variable is not in the environment"),
    ],
)
def test_a_broken_target_stops_run_before_the_command(
    home: Home, tmp_path: Path, target: str, reason: str
) -> None:
    result = home.run("touch", str(tmp_path / "ran"), options=("--notify", target))
    assert result.returncode == 125
    assert f"logshipper: --notify: {reason}" in result.stderr.decode()
    assert WORD.encode() not in result.stderr
    assert not (tmp_path / "ran").exists()


def test_a_broken_target_of_the_file_is_an_event_and_a_line_and_the_job_runs(home: Home) -> None:
    """The command waits for the line on its standard error."""
    path = home.folder / "targets"
    path.write_text("desktop\n")
    path.chmod(0o644)
    home.opt_in(f"notify: {{to: 'file:{path}', on: failure}}\n".encode())
    read, write = os.pipe()
    with home.start("run", "--", "sh", "-c", "read x", stdin=read) as process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        os.write(write, b"\n")
        assert process.wait() == 0
    os.close(read)
    os.close(write)
    reason = f"messages cannot reach file:{path}: others may read it: `chmod 600 {path}`"
    assert line == f"logshipper: {reason}\n"
    assert failures(home) == [reason]


def test_a_missing_apprise_is_named_and_commands_do_without(
    home: Home, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(sender.TargetError, match="pip install apprise"):
        sender.check(sender.Target("json", "json://localhost"))
    order = {"title": "t", "body": "b", "brief": "b", "kind": "end", "job_id": "j"}
    target = sender.Target("cmd", f"cmd:{script.path}")
    sender.check(target)
    sender.send(target, order)
    assert script.messages() == ["end|j|\nt\n\nb"]


def test_one_message_of_a_kind_an_hour_counts_all_attempts(home: Home, script: Script) -> None:
    options = ("--notify", f"cmd:{script.path}", "--job-id", "again")
    home.run("true", options=options)
    script.await_messages()
    home.run("true", options=options)
    wait_until(lambda: "notifications_held_back" in home.events(), "the event")
    assert len(script.messages()) == 1
    (event,) = [e for e in home.show()["events"] if e["event"] == "notifications_held_back"]
    assert event["details"] == {"kind": "end", "count": 1}


def test_of_ranks_the_first_one_sends(home: Home, script: Script) -> None:
    home.opt_in(f"notify: 'cmd:{script.path}'\n".encode())
    ranks = {"OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "n"}
    home.run("true", env=ranks)
    home.run("true", env={**ranks, "OMPI_COMM_WORLD_RANK": "0"})
    assert len(script.await_messages()) == 1


def test_a_schedulers_job_waits_for_its_message(home: Home, script: Script) -> None:
    """The scheduler kills all processes with the job's last one."""
    options = ("--notify", f"cmd:{script.path}")
    home.run("true", options=options, env={"SLURM_JOB_ID": "4711"})
    assert len(script.messages()) == 1


def test_check_explains_and_tries_targets(home: Home, http: HttpReceiver) -> None:
    targets = secret_file(home, f"json://127.0.0.1:{http.port}/{WORD}")
    text = f"notify: {{to: [desktop, '{targets}'], on: [failure, silence], silence: 1h}}\n"
    home.opt_in(text.encode())
    result = home.call("check")
    assert result.returncode == 1
    assert f"notify: messages go to `desktop`, `{targets}`" in result.stdout.decode()
    assert "about a job that fails; no output for 1h" in result.stdout.decode()
    assert b"notify: desktop: there is no program notify-send" in result.stderr
    assert not http.documents
    home.opt_in(text.replace("desktop, ", "").encode())
    result = home.call("check", "--notify")
    assert result.returncode == 0, result.stderr
    assert http.titles() == ["A test message of logshipper"]
    document = json.loads(home.call("check", "--json").stdout)
    assert document["config"]["notify"]["to"] == [targets]
    assert WORD.encode() not in result.stdout


def test_inside_a_captured_run_notify_says_that_it_has_no_effect(
    home: Home, script: Script
) -> None:
    inner = (
        sys.executable,
        "-m",
        "logshipper",
        "run",
        "--notify",
        f"cmd:{script.path}",
        "--",
        "true",
    )
    home.run(*inner)
    assert any("--notify has no effect here" in line for line in home.logs())
    assert not script.messages()


def test_the_page_in_grafana_is_named_where_it_is_known(
    tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site.toml"
    site.write_text('[grafana]\nurl = "https://grafana.example.org"\ncluster = "alpha"\n')
    monkeypatch.setenv("LOGSHIPPER_SITE", str(site))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts = {"title": "t", "body": "b", "brief": "b", "kind": "end", "job_id": "4711"}
    order = {**texts, "targets": [f"cmd:{script.path}"], "begin_ms": 1000}
    assert list(sender.serve(order)) == [{"target": "cmd"}]
    (message,) = script.messages()
    address = "page: https://grafana.example.org/d/logshipper-job?var-cluster=alpha&var-job=4711"
    assert address in message
    assert list(sender.serve(order)) == [{"held": True}]
