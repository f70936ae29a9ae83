"""The machine's disk: a distribution with Slurm, made once by debootstrap and cached. Each run adds
packages of this clone's project, which it builds there."""

import hashlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.go import run
from tests.servers.loki import find_loki
from tests.servers.places import CACHE, ServerMissing, locked, made_whole
from tests.servers.progress import Progress
from tests.tools import debootstrap
from tests.tools.sources import ROOT, copy_sources
from tests.vm.releases import PACKAGES, RELEASES, Release

LOCKS = [ROOT / "requirements" / f"{name}.lock" for name in ("runtime", "dev")]
SBIN = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
DISK_MB = 5000
LAST_USER = 250  # u100 to u250
VERSION = 2  # of the cached root
BUILD_PACKAGES = ("setuptools",)  # of dev.lock
VENV, WHEELS = "/usr/src/venv", "/usr/src/wheels"  # inside the root
PLATFORMS = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in range(17, 37)))
PROXIES = ("http_proxy", "https_proxy")


def base_root(release: Release, mirror: str = "") -> Path:
    """Return the folder of a distribution with Slurm and the Python packages that ours need at run
    and build time. Callers must not write to it. Raise ServerMissing."""
    content = f"{VERSION} {PACKAGES} {release} {_locked()}".encode()
    key = hashlib.sha256(content).hexdigest()[:12]
    place = CACHE.parent / "roots" / f"vm-{release.name}-{key}"
    with locked(f"root-vm-{release.name}"):
        place.parent.mkdir(exist_ok=True)
        if not place.exists():
            title = f"Making {release.distribution} {release.name} with Slurm by debootstrap, once"
            with Progress(title) as progress, made_whole(place) as scratch:
                scratch.chmod(0o755)
                _make(release, debootstrap.mirror(release.distribution, mirror), scratch, progress)
    return place


def _make(release: Release, site: str, folder: Path, progress: Progress) -> None:
    progress.doing = "debootstrap"
    command = [
        program("debootstrap"), "--variant=minbase", f"--components={release.components}",
        *debootstrap.keyring(release.distribution), release.name, str(folder), site,
        f"/usr/share/debootstrap/scripts/{release.script}",
    ]  # fmt: skip
    _run(command, folder, "debootstrap failed")
    progress.doing = "packages"
    packages = " ".join((*PACKAGES, release.kernel))
    # Not by debootstrap itself, which unpacks all packages before it configures one. A mirror's
    # copy of testing may be weeks old.
    update = "apt-get -qq -o Acquire::Check-Valid-Until=false update"
    install = f"{update}; apt-get -qq --yes install --no-install-recommends {packages}"
    script = f"mount -t proc proc {folder}/proc; chroot {folder} sh -ec '{install}'"
    _run(["unshare", "--mount", "sh", "-ec", script], folder, "packages couldn't be installed")
    shutil.rmtree(folder / "var/cache/apt/archives", ignore_errors=True)
    progress.doing = "Python packages"
    _add_python_packages(folder)


def _add_python_packages(folder: Path) -> None:
    """Add our packages' dependencies as wheels, and a Python that builds them."""
    chroot = ["chroot", str(folder)]
    _run([*chroot, "python3", "-m", "venv", VENV], folder, "no venv could be made")
    (python,) = (folder / VENV[1:] / "lib").glob("python3.*")
    lock = folder / "root" / "lock"
    lock.write_text(_locked())
    wheels = folder / WHEELS[1:]
    _run(_download(python.name.removeprefix("python"), lock, wheels), folder, "pip download failed")
    install = f"{VENV}/bin/python -m pip install --quiet --no-index --no-deps {WHEELS}/*.whl"
    _run([*chroot, "sh", "-c", install], folder, "the Python packages couldn't be installed")


def _locked() -> str:
    """Return the locks of run-time and build dependencies."""
    runtime, dev = (lock.read_text() for lock in LOCKS)
    blocks = re.findall(r"^[\w.-]+==.*\\\n(?:    .*\n)+", dev, re.MULTILINE)
    return runtime + "".join(
        block for block in blocks if block.partition("==")[0] in BUILD_PACKAGES
    )


def _download(version: str, lock: Path, wheels: Path) -> list[str]:
    """Return the command that downloads wheels for another Python than the running one."""
    abi = f"cp{version.replace('.', '')}"
    platforms = [f"--platform={name}_x86_64" for name in PLATFORMS]
    return [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--require-hashes",
        "--only-binary", ":all:", *platforms, "--implementation=cp", f"--python-version={version}",
        f"--abi={abi}", "--abi=abi3", "--abi=none", "--dest", str(wheels), "-r", str(lock),
    ]  # fmt: skip


def program(name: str) -> str:
    """Return a program's path. Raise ServerMissing."""
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SBIN}")
    if program is None:
        raise ServerMissing(f"{name} isn't installed; requirements/system.sh does it")
    return program


def _run(command: Sequence[str], folder: Path, failure: str) -> None:
    environment: Mapping[str, str] = {
        **{key: value for key, value in os.environ.items() if key.startswith("PIP_") or key in PROXIES},
        "HOME": os.environ.get("HOME", "/root"),
        "PATH": f"{SBIN}:/usr/bin",
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
    }  # fmt: skip
    run(command, folder, environment, None, failure)


def kernel(root: Path) -> tuple[Path, Path]:
    """Return the paths of the kernel and its initrd."""
    (image,) = (root / "boot").glob("vmlinuz-*")
    return image, image.with_name(image.name.replace("vmlinuz", "initrd.img"))


def disk(root: Path, place: Path) -> None:
    """Make the file `place`: an ext4 file system of the root with the installed project. Raise
    ServerMissing."""
    with tempfile.TemporaryDirectory(prefix="logshipper-vm-") as name:
        work = Path(name)
        source = work / "source"
        copy_sources(source)
        script = f"""
            mount -t tmpfs -o mode=755 none {work}/mnt
            mkdir {work}/mnt/upper {work}/mnt/work {work}/mnt/root
            at={work}/mnt/root
            mount -t overlay -o lowerdir={root},upperdir={work}/mnt/upper,workdir={work}/mnt/work overlay $at
            mkdir $at/usr/src/logshipper
            mount --bind {source} $at/usr/src/logshipper
            install -m 755 {shlex.quote(str(find_loki().path))} $at/usr/local/bin/loki
            mount --bind /dev/null $at/dev/null
            mount -t proc proc $at/proc
            chroot $at /usr/src/logshipper/tests/vm/guest/packages.sh {VENV} {WHEELS}
            chroot $at /usr/src/logshipper/tests/vm/guest/install.sh {LAST_USER}
            umount $at/proc $at/dev/null $at/usr/src/logshipper
            mke2fs -q -t ext4 -F -m 0 -d $at {place} {DISK_MB}M
        """
        (work / "mnt").mkdir()
        _run(
            ["unshare", "--mount", "sh", "-ec", script], work, "the machine's disk couldn't be made"
        )


if __name__ == "__main__":
    disk(base_root(RELEASES[sys.argv[1]]), Path(sys.argv[2]))
