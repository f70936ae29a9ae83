"""What debootstrap needs to make a root of Debian or Ubuntu on either of them: a mirror, and the
keys of the archive."""

import hashlib
import io
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from tests.servers.places import CACHE, ServerMissing, locked, made_whole

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
FETCH_SECS = 60.0
MAX_BYTES = 1 << 20


def mirror(distribution: str, mirror: str = "") -> str:
    """The address of an archive of `Debian` or `Ubuntu`: the given one; else what this machine's
    apt uses for its own distribution, whose other releases are there, too; else the usual one."""
    return mirror or (
        _apt_mirror() if _own_id() == distribution.lower() else ARCHIVES[distribution]
    )


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


def _own_id() -> str:
    return _os_release().get("ID", "")


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
