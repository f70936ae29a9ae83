"""The SELinux module: the agent's permissions and their limits, in a copy of Debian's policy.

The policy's own tools compile the module. Debian: apt install selinux-policy-dev
selinux-policy-default policycoreutils setools.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools.sources import ROOT

MODULE = ROOT / "deploy" / "selinux"
MAKEFILE = Path("/usr/share/selinux/devel/Makefile")
STORE = Path("/var/lib/selinux/default")
PROGRAMS = ("make", "checkmodule", "semodule", "sesearch")
SECS = 300
WRITES = "append,write,create,unlink,rename,setattr"


@pytest.fixture(scope="module")
def policy(root_user: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Debian's whole policy and the module: policy.N, file_contexts."""
    missing = [str(path) for path in (MAKEFILE, STORE / "active") if not path.exists()]
    missing += [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(
            f"SELinux's tools aren't all here: {', '.join(missing)} (apt install: see above)"
        )
    folder = tmp_path_factory.mktemp("selinux")
    module = shutil.copytree(MODULE, folder / "module")
    call("make", "-C", str(module), "-f", str(MAKEFILE), "logshipper.pp")
    shutil.copytree(STORE, folder / "root" / STORE.relative_to("/"), symlinks=True)
    shutil.copytree("/etc/selinux", folder / "root/etc/selinux", symlinks=True)
    command = ["semodule", "-n", "-p", str(folder / "root"), "-s", "default"]
    call(*command, "-i", str(module / "logshipper.pp"))
    return folder / "root/etc/selinux/default"


def call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiled(policy: Path) -> str:
    (file,) = (policy / "policy").glob("policy.*")
    return str(file)


def rules(policy: Path, *options: str) -> list[str]:
    """Return the agent's allow rules, including those of its type's attributes."""
    text = call("sesearch", "-A", "-s", "logshipper_agent_t", *options, compiled(policy))
    return [line for line in text.splitlines() if line.startswith("allow")]


def targets(policy: Path, *options: str) -> set[str]:
    return {line.split()[2].partition(":")[0] for line in rules(policy, *options)}


def test_systemd_starts_it_in_a_domain_of_its_own(policy: Path) -> None:
    file = compiled(policy)
    transition = call("sesearch", "-T", "-s", "init_t", "-t", "logshipper_agent_exec_t", file)
    assert transition.split() == [
        "type_transition", "init_t", "logshipper_agent_exec_t:process", "logshipper_agent_t;",
    ]  # fmt: skip
    options = ("-t", "logshipper_agent_t", "-p", "nnp_transition")
    assert call("sesearch", "-A", "-s", "init_t", *options, file), "as NoNewPrivileges=yes needs"


def test_it_writes_its_own_files_only(policy: Path) -> None:
    for kind in ("file", "dir"):
        written = targets(policy, "-c", kind, "-p", WRITES)
        own = {f"logshipper_{name}_t" for name in ("spool", "state", "runtime", "agent")}
        # a descriptor that it can inherit from systemd
        assert written - {"init_tmpfs_t"} <= own, kind
        assert own - {"logshipper_agent_t"} <= written, kind


@pytest.mark.parametrize("target", ["shadow_t", "user_home_t", "ssh_home_t", "auditd_log_t"])
def test_what_it_never_reads(policy: Path, target: str) -> None:
    assert rules(policy, "-t", target, "-c", "file") == []


def test_it_has_the_unit_s_capabilities(policy: Path) -> None:
    """dac_override implies dac_read_search; net_bind_service comes from a boolean for NIS."""
    unit = (ROOT / "deploy/systemd/logshipper-agent.service").read_text()
    (names,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    lines = [line for line in rules(policy, "-c", "capability") if "allow_ypbind" not in line]
    (allowed,) = (re.findall(r"\{ (.*) \}", line)[0].split() for line in lines)
    assert set(allowed) - {"dac_read_search"} == {
        name.removeprefix("CAP_").lower() for name in names.split()
    }


def test_it_listens_at_ports_of_its_own_type(policy: Path) -> None:
    lines = rules(policy, "-c", "tcp_socket", "-p", "name_bind")
    assert {line.split()[2] for line in lines if "allow_ypbind" not in line} == {
        "logshipper_port_t:tcp_socket"
    }
    assert targets(policy, "-c", "tcp_socket", "-p", "name_connect"), "Loki's may be any"


def test_the_journal_and_systemd_hear_it(policy: Path) -> None:
    assert {"syslogd_t", "init_t"} <= targets(policy, "-c", "unix_dgram_socket", "-p", "sendto")


def test_users_are_captured(policy: Path) -> None:
    file = compiled(policy)
    for domain in ("user_t", "staff_t"):
        for options in (
            ("-t", "logshipper_agent_t", "-c", "unix_stream_socket", "-p", "connectto"),
            ("-t", "logshipper_spool_t", "-c", "file", "-p", "create"),
        ):
            assert call("sesearch", "-A", "-s", domain, *options, file), (domain, options)
        assert not call(
            "sesearch", "-A", "-s", domain, "-t", "logshipper_state_t", "-c", "file", file
        )


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/spool/logshipper/4711@1.ab/segments/1.seg", "spool"),
        ("/var/spool/logshipper-ended/4711", "spool"),
        ("/var/lib/logshipper/quarantine", "state"),
        ("/run/logshipper/agent.sock", "runtime"),
        ("/opt/logshipper/bin/logshipper-agent", "agent_exec"),
    ],
)
def test_labels(policy: Path, path: str, kind: str) -> None:
    if shutil.which("matchpathcon") is None:
        pytest.skip("matchpathcon isn't here (apt install selinux-utils)")
    contexts = policy / "contexts/files/file_contexts"
    words = call("matchpathcon", "-n", "-f", str(contexts), path)
    assert words.strip() == f"system_u:object_r:logshipper_{kind}_t:s0"
