"""Packages on a machine with Slurm but without logshipper: installed, used, upgraded, rolled back
and removed by the distribution's own tools."""

from pathlib import Path

from tests.distributions import other_slurm
from tests.distributions.building import Packages
from tests.distributions.machine import SET_URL, Failed, Machine
from tests.distributions.releases import Release

UNIT = "/etc/systemd/system/logshipper-agent.service"  # removal masks this unit
INSTALL = "apt-get -qq install"
NAMES = ("logshipper.so", "logshipper-identity.so", "logshipper-keeper")
SLURM_CONF = """
mkdir -p /etc/slurm
cat > /etc/slurm/slurm.conf <<'END'
ClusterName=hpc
SlurmctldHost=node1(127.0.0.1)
NodeName=node1 NodeAddr=127.0.0.1 CPUs=1
PartitionName=all Nodes=ALL Default=YES
END
echo 'optional logshipper.so spool=/var/spool/logshipper cluster=local' > /etc/slurm/plugstack.conf
"""
# /etc/hosts: netbase creates it, a dependency of Ubuntu 24.04's Python
FILES = "find / -xdev " + " ".join(
    f"-path {place} -prune -o"
    for place in (
        "/proc /dev /tmp /root /debs /etc/slurm /etc/resolv.conf /etc/hosts /etc/ssl/certs "
        "/var/lib/dpkg /var/lib/apt /var/log /var/cache"
    ).split()
)


class Trial:
    """Steps in their order; each raises Failed."""

    def __init__(self, machine: Machine, release: Release, packages: Packages) -> None:
        self.machine = machine
        self.release = release
        self.packages = packages
        self.before: set[str] = set()
        self.plugins = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
        for name in ("first", "newer", "other"):
            folder: Path = getattr(packages, name)
            machine.put(sorted(folder.iterdir()), f"/debs/{name}")

    def expect(self, script: str, *words: str, absent: str = "") -> str:
        output = self.machine.run(script)
        for word in words:
            if word not in output:
                raise Failed(f"no `{word}` in what this printed:\n{script}\n{output}")
        if absent and absent in output:
            raise Failed(f"`{absent}` in what this printed:\n{script}\n{output}")
        return output

    def installed(self) -> None:
        self.before = self.files()
        self.expect(f"{INSTALL} /debs/first/*.deb", f"Slurm {self.packages.slurm} loads")
        self.expect("logshipper run -- echo captured", "captured")
        self.expect("logshipper logs last", "captured")
        self.expect(f"{SET_URL}\nlogshipper-agent validate --config /etc/logshipper/agent.toml")
        self.expect("ls -l /opt/logshipper/bin/python", f"/usr/bin/python{self.release.python}")
        self.expect("stat -c '%n %U %a' /var/spool/logshipper", "root 711")

    def loaded(self) -> None:
        """This release's srun loads the plugin, looks up its callbacks, and prints nothing about
        it."""
        self.machine.run(SLURM_CONF)
        asked = f"{self.plugins}/logshipper.so: error: symbol lookup error: undefined symbol: slurm_spank_init "
        self.expect("LD_DEBUG=files timeout 5 srun true 2>&1 || :", asked)
        self.expect("timeout 5 srun true 2>&1 || :", absent="logshipper")
        for name in NAMES:
            self.expect(f"ldd {self.plugins}/{name}", "libc.so", absent="not found")

    def links(self, release: str) -> None:
        for name in NAMES:
            wanted = f"/logshipper/slurm-{release}/{name}\n" if release else ""
            target = self.machine.run(f"readlink {self.plugins}/{name} || :")
            if not target.endswith(wanted) or (not wanted and target):
                raise Failed(
                    f"{self.plugins}/{name} leads to `{target}`, not to {release or 'nothing'}"
                )

    def slurm_changed(self) -> None:
        """With plugins of two releases installed, Slurm changes to the other release and back."""
        self.machine.run(f"{INSTALL} /debs/other/*.deb")
        self.links(self.packages.slurm)
        archive = "/var/cache/apt/archives/slurm-wlm-basic-plugins_*.deb"
        other_slurm.change(self.machine, archive)
        self.machine.run(f"dpkg-deb -Zgzip --build {other_slurm.FOLDER} slurm.deb")
        self.expect("dpkg --install /root/slurm.deb", f"Slurm {other_slurm.RELEASE} loads")
        self.links(other_slurm.RELEASE)
        self.expect(
            f"apt-get -qq remove logshipper-slurm-{other_slurm.RELEASE}",
            f"install logshipper-slurm-{other_slurm.RELEASE}",
        )
        self.links("")
        self.expect(f"dpkg --install {archive}", f"Slurm {self.packages.slurm} loads")
        self.links(self.packages.slurm)
        self.expect("dpkg --audit; dpkg --list | grep -v '^ii' | tail -n +6", absent="slurm")

    def upgraded(self) -> None:
        self.machine.run(f"{INSTALL} /debs/newer/*.deb")
        self.versions(2)

    def rolled_back(self) -> None:
        self.machine.run(f"{INSTALL} --allow-downgrades /debs/first/*.deb")
        self.versions(1)

    def versions(self, number: int) -> None:
        shown = self.machine.run("dpkg-query -W -f '${Version}\\n' logshipper 'logshipper-slurm-*'")
        if set(shown.split()) - {""} != {f"0.1.0-{number}+{self.release.label}"}:
            raise Failed(f"these versions are installed: {shown}")
        self.links(self.packages.slurm)
        self.expect("cat /etc/logshipper/agent.toml", "loki.example.org")  # the admin's file
        self.expect("logshipper --version", "logshipper 0.1.0")
        self.loaded()

    def removed(self) -> None:
        self.expect("apt-get -qq remove logshipper 2>&1", "plugstack.conf:1 names logshipper.so")
        self.links("")
        self.expect(
            "ls /etc/logshipper; ls -d /opt/logshipper 2>&1 || :", "agent.toml", "No such file"
        )
        self.machine.run(f"{INSTALL} /debs/first/*.deb")  # again, over the files that removal keeps
        self.versions(1)
        self.expect(f"readlink {UNIT} || :", absent="/dev/null")
        self.machine.run(
            "apt-get -qq purge logshipper 'logshipper-slurm-*' && apt-get -qq autoremove --purge"
        )
        left = self.files() - self.before
        if left:
            raise Failed(f"left behind: {sorted(left)}")

    def files(self) -> set[str]:
        return set(self.machine.run(f"{FILES} -print").splitlines())
