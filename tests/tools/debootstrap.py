"""Roots of Debian and Ubuntu, made by debootstrap on either of them: from which mirror, by which
keys of the archive, and how commands run in one."""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.servers.go import run
from tests.servers.places import CACHE, ServerMissing, locked, made_whole
from tests.servers.progress import Progress

ARCHIVES = {
    "Debian": "http://deb.debian.org/debian",
    "Ubuntu": "http://archive.ubuntu.com/ubuntu",
}
KEYRINGS = {
    "Debian": "usr/share/keyrings/debian-archive-keyring.gpg",
    "Ubuntu": "usr/share/keyrings/ubuntu-archive-keyring.gpg",
}
# Debian 12 has no package of Ubuntu's keys; this one is theirs
UBUNTU_PACKAGE = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1build1_all.deb"
UBUNTU_SHA256 = "c377ccf26964f4c206c05c0bc7adb708e031beb919bb9a0ff63af983d064cd66"
COMPONENTS = {"Debian": "main", "Ubuntu": "main universe"}
SCRIPTS = {"Debian": "sid", "Ubuntu": "jammy"}  # right for releases that debootstrap is too old for
FETCH_SECS = 60.0
VERSION = 1  # of what is made here
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
MAX_BYTES = 1 << 20


def mirror(distribution: str, mirror: str = "") -> str:
    """The address of an archive of `Debian` or `Ubuntu`: the given one; else what this machine's
    apt uses for its own distribution, whose other releases are there, too; else the usual one."""
    return mirror or (
        _apt_mirror() if _os_release().get("ID") == distribution.lower() else ARCHIVES[distribution]
    )


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


def own_release() -> tuple[str, str]:
    """The distribution of this machine and its release's name, such as Debian, bookworm. Raises
    ServerMissing where it is neither Debian nor Ubuntu."""
    about = _os_release()
    distribution = about.get("ID", "").capitalize()
    if distribution not in ARCHIVES or not about.get("VERSION_CODENAME"):
        raise ServerMissing("this machine has neither Debian nor Ubuntu")
    return distribution, about["VERSION_CODENAME"]


def _apt_mirror() -> str:
    about = _os_release()
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)",
               "Created-By: Packages"]  # fmt: skip
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        listed = ""
    own = [about.get("VERSION_CODENAME", ""), "main"]
    sites = [words[0] for words in map(str.split, listed.splitlines()) if words[1:] == own]
    return sites[0] if sites else ARCHIVES[about["ID"].capitalize()]


def keyring(distribution: str) -> list[str]:
    """Options of debootstrap that name the keys of the archive of `Debian` or `Ubuntu`. Raises
    ServerMissing."""
    place = Path("/", KEYRINGS[distribution])
    if not place.exists() and distribution == "Ubuntu":
        place = _ubuntu_keys()
    if not place.exists():
        raise ServerMissing(
            f"there is no {place}: apt install {distribution.lower()}-archive-keyring"
        )
    return [f"--keyring={place}"]


def _ubuntu_keys() -> Path:
    """Of Ubuntu's own package, kept in the cache. Raises ServerMissing."""
    place = CACHE.parent / "keyrings" / UBUNTU_SHA256[:12]
    with locked("ubuntu-keyring"):
        place.parent.mkdir(exist_ok=True)
        if not place.exists():
            with made_whole(place) as scratch:
                package = scratch / "package.deb"
                package.write_bytes(_fetch(f"{mirror('Ubuntu')}/{UBUNTU_PACKAGE}"))
                _unpack(package, KEYRINGS["Ubuntu"], scratch)
    return place / Path(KEYRINGS["Ubuntu"]).name


def _fetch(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=FETCH_SECS) as answer:  # noqa: S310  http, by ARCHIVES
            content: bytes = answer.read(MAX_BYTES)
    except (urllib.error.URLError, OSError) as error:
        raise ServerMissing(f"{address}: {error}") from None
    if hashlib.sha256(content).hexdigest() != UBUNTU_SHA256:
        raise ServerMissing(f"{address} isn't the file that UBUNTU_SHA256 of {__file__} is of")
    return content


def _unpack(package: Path, name: str, folder: Path) -> None:
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    content = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if member.name.removeprefix("./") == name and (file := archive.extractfile(member)):
                (folder / Path(name).name).write_bytes(file.read())


def root(
    name: str,
    distribution: str,
    suite: str,
    packages: Sequence[str],
    *commands: str,
    site: str = "",
) -> Path:
    """Folder of a root with these packages, never to be written to: made once by debootstrap, and
    kept in the cache. commands: of the shell, run in it at the end, with a network. Raises
    ServerMissing."""
    content = repr((VERSION, distribution, suite, sorted(packages), commands))
    place = CACHE.parent / "roots" / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    with locked(f"root-{name}"):
        place.parent.mkdir(exist_ok=True)
        if not place.exists():
            title = f"Making {distribution} {suite} ({name}) by debootstrap, once"
            with Progress(title) as progress, made_whole(place) as scratch:
                scratch.chmod(0o755)  # it is /, for users of packages, too
                progress.doing = "debootstrap"
                _bootstrap(distribution, suite, packages, scratch, mirror(distribution, site))
                for command in commands:
                    progress.doing = command
                    failure = f"`{command}` failed in a root of {distribution} {suite}"
                    run(
                        inside(scratch, "sh", "-ec", command), scratch, environment(), None, failure
                    )
    return place


def _bootstrap(
    distribution: str, suite: str, packages: Sequence[str], folder: Path, site: str
) -> None:
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")
    if program is None:
        raise ServerMissing("debootstrap isn't installed; requirements/system.sh does it")
    components = COMPONENTS[distribution]
    command = [
        program, "--variant=minbase", f"--components={components.replace(' ', ',')}", *keyring(distribution),
        *([f"--include={','.join(packages)}"] if packages else []), suite, str(folder), site,
        f"/usr/share/debootstrap/scripts/{SCRIPTS[distribution]}",
    ]  # fmt: skip
    run(command, folder, environment(), None, f"debootstrap of {distribution} {suite} failed")
    for archive in (folder / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    sources = folder / "etc/apt/sources.list"
    lines = [f"deb {site} {pocket} {components}\n" for pocket in (suite, f"{suite}-updates")]
    sources.write_text("".join(lines))
    # a mirror may be behind; nobody is asked; and what a package needs it must name
    (folder / "etc/apt/apt.conf.d/90-tests").write_text(
        'Acquire::Check-Valid-Until "false";\nAPT::Get::Assume-Yes "true";\n'
        'APT::Install-Recommends "false";\n'
    )
    # synced by nobody: what isn't whole is made again
    (folder / "etc/dpkg/dpkg.cfg.d/90-tests").write_text("force-unsafe-io\n")
    policy = folder / "usr/sbin/policy-rc.d"  # no service is started in it
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)


def environment() -> dict[str, str]:
    """Of commands in a root: proxies and pip's settings are this machine's."""
    return {
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in PROXIES},
        "HOME": "/root", "PATH": SBIN, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
    }  # fmt: skip


def inside(folder: Path, *command: str) -> list[str]:
    """A command with a root as /, in a mount namespace of its own; names are resolved as
    on this machine, and where it has the package ca-certificates, servers are trusted likewise."""
    script = """
        at=$0
        mount -t proc proc "$at/proc"
        mount --rbind /dev "$at/dev"
        mount -t tmpfs -o mode=1777 none "$at/tmp"
        touch "$at/etc/resolv.conf"
        mount --bind /etc/resolv.conf "$at/etc/resolv.conf"
        if [ -e /etc/ssl/certs/ca-certificates.crt ] && [ -e "$at/etc/ssl/certs/ca-certificates.crt" ]; then
            mount --bind /etc/ssl/certs/ca-certificates.crt "$at/etc/ssl/certs/ca-certificates.crt"
        fi
        exec chroot "$at" "$@"
    """
    return ["unshare", "--mount", "sh", "-ec", script, str(folder), *command]
