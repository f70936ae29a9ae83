"""RPMs installed, upgraded, rolled back and removed by Debian's rpm, including scripts and
triggers.

The machine is no Enterprise Linux, but has its Python, and Slurm at its path there. The trial
ignores dependencies, because rpm's database is empty.
"""

from tests.distributions import other_slurm
from tests.distributions.building import BUILD, SOURCE
from tests.distributions.machine import SET_URL, Failed, Machine
from tests.distributions.releases import Release

RPM = "rpm --force-debian --nodeps"
SLURM_SPEC = """
%global debug_package %{nil}
%global __os_install_post %{nil}
Name: slurm
Version: @VERSION@
Release: 1
Summary: Plugins of Slurm
License: GPL-2.0-or-later
AutoReqProv: no
%description
Plugins of Slurm.
%install
mkdir -p "$RPM_BUILD_ROOT/usr/lib64"
cp -R /root/slurm/usr/lib/*/slurm-wlm "$RPM_BUILD_ROOT/usr/lib64/slurm"
%files
/usr/lib64/slurm
"""
PLUGIN = "/usr/lib64/slurm/logshipper.so"


def try_rpms(machine: Machine, release: Release) -> None:
    """Try the RPMs of each Enterprise Linux. Raises Failed."""
    machine.run("apt-get -qq download slurm-wlm-basic-plugins")
    for target in release.rpms:
        _try(machine, target)


def _try(machine: Machine, target: str) -> None:
    machine.run(
        f"{BUILD} RELEASE=2 TARGET={target} deploy/packages/build.sh rpm /newer-{target}\n"
        f"rpmbuild --rebuild --nodeps --define '_topdir /root/other-{target}' --define 'dist .{target}' "
        f"--define 'slurm_include {other_slurm.HEADERS}' {SOURCE}/dist/logshipper-slurm-*.src.rpm"
    )
    first = f"{SOURCE}/dist/logshipper-0*.{target}.x86_64.rpm"
    plugin = f"/root/rpmbuild/RPMS/*/logshipper-slurm-*.{target}.x86_64.rpm"
    machine.run(f"{RPM} --install {first} {plugin}")
    _expect(machine, "logshipper run -- echo captured", "captured")
    archive = "/root/slurm-wlm-basic-plugins_*.deb"
    other_slurm.change(machine, archive)
    _make_slurm(machine, other_slurm.RELEASE)
    machine.run(
        f"rm -r {other_slurm.FOLDER}; dpkg-deb --raw-extract {archive} {other_slurm.FOLDER}"
    )
    _make_slurm(machine, "1")
    _expect(machine, f"{RPM} --install /root/slurm-1.rpm", "loads /usr/lib64/logshipper/slurm-")
    own = machine.run(f"readlink {PLUGIN}")
    machine.run(f"{RPM} --install /root/other-{target}/RPMS/*/*.rpm")
    _expect(machine, f"readlink {PLUGIN}", own)
    _expect(
        machine,
        f"{RPM} --upgrade /root/slurm-{other_slurm.RELEASE}.rpm",
        f"Slurm {other_slurm.RELEASE} loads",
    )
    _expect(machine, f"readlink {PLUGIN}", f"/slurm-{other_slurm.RELEASE}/")
    told = f"install logshipper-slurm-{other_slurm.RELEASE}"
    _expect(machine, f"{RPM} --erase logshipper-slurm-{other_slurm.RELEASE} 2>&1", told)
    machine.run(f"{RPM} --upgrade --oldpackage /root/slurm-1.rpm")
    _expect(machine, f"readlink {PLUGIN}", own)

    machine.run(SET_URL)
    for files, number in ((f"/newer-{target}/logshipper-0*.x86_64.rpm", 2), (first, 1)):
        machine.run(f"{RPM} --upgrade --oldpackage {files}")
        _expect(machine, "rpm --query logshipper", f"-{number}.{target}")
        _expect(
            machine,
            "logshipper-agent validate --config /etc/logshipper/agent.toml && echo valid",
            "valid",
        )
        _expect(machine, f"readlink {PLUGIN}", own)
    machine.run(f"{RPM} --erase logshipper $(rpm --query --all 'logshipper-slurm-*')")
    _expect(machine, f"readlink {PLUGIN} || echo gone", "gone")
    machine.run(f"{RPM} --erase slurm; rm -r {other_slurm.FOLDER} /root/slurm-*.rpm")
    # rpm keeps the admin's changed file under another name
    left = machine.run(
        "find / -xdev -name '*logshipper*' -not -path '/proc/*' -not -path '/root/*' -not -path '/usr/src/*' "
        "-not -path '/newer*' -not -path '/other*' -not -path '/wheels/*'"
    )
    if set(left.split()) - {"/etc/logshipper", "/var/spool/logshipper", "/var/lib/logshipper"}:
        raise Failed(f"left behind by the RPMs for {target}:\n{left}")


def _make_slurm(machine: Machine, version: str) -> None:
    spec = SLURM_SPEC.replace("@VERSION@", version)
    machine.run(
        f"cat > slurm.spec <<'END'\n{spec}END\n"
        "rpmbuild -bb --define '_topdir /root/slurm-rpm' slurm.spec\n"
        f"mv slurm-rpm/RPMS/*/slurm-{version}-1.*.rpm slurm-{version}.rpm"
    )


def _expect(machine: Machine, script: str, words: str) -> None:
    output = machine.run(script)
    if words.strip() not in output:
        raise Failed(f"no `{words}` in what this printed:\n{script}\n{output}")
