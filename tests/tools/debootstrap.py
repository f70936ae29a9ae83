"""Roots of Debian and Ubuntu, made by debootstrap on either of them.

The module chooses the mirror and the archive's keys, and runs commands in the roots.
"""

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

ARCHIVES = {"Debian": "http://deb.debian.org/debian", "Ubuntu": "http://archive.ubuntu.com/ubuntu"}
KEYRINGS = {
    "Debian": "usr/share/keyrings/debian-archive-keyring.gpg",
    "Ubuntu": "usr/share/keyrings/ubuntu-archive-keyring.gpg",
}
# Debian 12 has no package of Ubuntu's keys; this is Ubuntu's own package
UBUNTU_PACKAGE = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1build1_all.deb"
UBUNTU_SHA256 = "c377ccf26964f4c206c05c0bc7adb708e031beb919bb9a0ff63af983d064cd66"
COMPONENTS = {"Debian": "main", "Ubuntu": "main universe"}
SCRIPTS = {"Debian": "sid", "Ubuntu": "jammy"}  # they fit releases that are newer than debootstrap
FETCH_SECS = 60.0
VERSION = 1  # of the roots; a change makes them anew
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
MAX_BYTES = 1 << 20


def mirror(distribution: str, mirror: str = "") -> str:
    """Return the address of an archive of `Debian` or `Ubuntu`.

    It is the given one, if any. For this machine's own distribution, apt's mirror follows, because
    it has the other releases too. The last choice is the usual archive.
    """
    return mirror or (
        _apt_mirror() if _os_release().get("ID") == distribution.lower() else ARCHIVES[distribution]
    )


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


def own_release() -> tuple[str, str]:
    """Return this machine's distribution and the name of its release, such as Debian, bookworm.

    Raises ServerMissing on other distributions than Debian and Ubuntu.
    """
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
    """Return debootstrap's options for the keys of the archive of `Debian` or `Ubuntu`.

    Raises ServerMissing.
    """
    place = Path("/", KEYRINGS[distribution])
    if not place.exists() and distribution == "Ubuntu":
        place = _ubuntu_keys()
    if not place.exists():
        raise ServerMissing(
            f"there is no {place}: apt install {distribution.lower()}-archive-keyring"
        )
    return [f"--keyring={place}"]


def _ubuntu_keys() -> Path:
    """Return the keys from Ubuntu's own package, which the cache keeps. Raises ServerMissing."""
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
    """Return the folder of a root with these packages, which callers must not change.

    debootstrap makes it once, and the cache keeps it. commands: of the shell, run in the root at
    the end, with a network. Raises ServerMissing.
    """
    content = repr((VERSION, distribution, suite, sorted(packages), commands))
    place = CACHE.parent / "roots" / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    with locked(f"root-{name}"):
        place.parent.mkdir(exist_ok=True)
        if not place.exists():
            title = f"Making {distribution} {suite} ({name}) by debootstrap, once"
            with Progress(title) as progress, made_whole(place) as scratch:
                scratch.chmod(0o755)  # it becomes /, for other users too
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
    # a mirror may lag behind; apt must not ask; packages must name their own dependencies
    (folder / "etc/apt/apt.conf.d/90-tests").write_text(
        'Acquire::Check-Valid-Until "false";\nAPT::Get::Assume-Yes "true";\n'
        'APT::Install-Recommends "false";\n'
    )
    # no sync: an incomplete root is made again
    (folder / "etc/dpkg/dpkg.cfg.d/90-tests").write_text("force-unsafe-io\n")
    policy = folder / "usr/sbin/policy-rc.d"  # prevents the start of services in the root
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)


def environment() -> dict[str, str]:
    """Return the environment of commands in a root, with this machine's proxies and pip's
    settings."""
    return {
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in PROXIES},
        "HOME": "/root", "PATH": SBIN, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
    }  # fmt: skip


def inside(folder: Path, *command: str) -> list[str]:
    """Return a command that runs with a root as /, in a mount namespace of its own.

    Names resolve as on this machine. With the package ca-certificates, the root also trusts the
    same servers.
    """
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
