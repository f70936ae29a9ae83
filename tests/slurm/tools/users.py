"""Ordinary users of a cluster. They exist only in the cluster's mount namespace, with its own
`/etc/passwd`, `/etc/group` and `/etc/shadow`. The machine's user database stays unchanged, so there
is nothing to undo."""

import grp
import os
import pwd
import random
import stat
from pathlib import Path
from typing import NamedTuple

UIDS = range(41_000, 59_000)  # avoids ids of people and of systemd (systemd: uids-gids)
UIDS_FILE = "uids"
KINDS = ("passwd", "group", "shadow")


class JobUser(NamedTuple):
    """A job's user. gid: of the group with the user's name. home: mode 0700."""

    name: str
    uid: int
    gid: int
    home: Path


def processes_of(uid: int) -> dict[int, str]:
    """Return a user's processes: names by pid."""
    commands = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == uid:
                commands[int(folder.name)] = (folder / "comm").read_text().strip()
        except OSError:
            continue
    return commands


class Users:
    """Users of a cluster. files: places by their replacing files in `folder`. These have the
    machine's users and the added ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used_uids = {entry.pw_uid for entry in pwd.getpwall()} | {
            entry.gr_gid for entry in grp.getgrall()
        }
        self._names = {entry.pw_name for entry in pwd.getpwall()} | {
            entry.gr_name for entry in grp.getgrall()
        }
        self.files = {str(folder / kind): f"/etc/{kind}" for kind in KINDS}
        for copy, place in self.files.items():
            Path(copy).touch(stat.S_IMODE(os.stat(place).st_mode))
            Path(copy).write_text(Path(place).read_text().rstrip("\n") + "\n")
        (folder / UIDS_FILE).touch()
        (folder / "home").mkdir()

    def add(self, name: str = "") -> JobUser:
        """Add a user with a home and unused ids. name: "" for a generated one."""
        name = name or next(
            name for number in range(1_000_000) if (name := f"user{number}") not in self._names
        )
        assert name not in self._names, f"there is a user or group {name} already"
        number = random.choice([number for number in UIDS if number not in self._used_uids])
        self._names.add(name)
        self._used_uids.add(number)
        user = JobUser(name, number, number, self._folder / "home" / name)
        user.home.mkdir(mode=0o700)
        os.chown(user.home, user.uid, user.gid)
        lines = {
            UIDS_FILE: f"{user.uid}\n",
            "passwd": f"{name}:x:{user.uid}:{user.gid}::{user.home}:/bin/bash\n",
            "group": f"{name}:x:{user.gid}:\n",
            "shadow": f"{name}:*:19000:0:99999:7:::\n",  # required by `su`, so also by sbatch --export=NONE
        }
        for file_name, line in lines.items():
            with (self._folder / file_name).open("a") as file:  # in place: mounted over /etc/...
                file.write(line)
        return user
