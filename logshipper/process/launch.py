"""From a forked process to CMD: finds and executes it as `env` does."""

import errno
import os

from logshipper.errors import CaptureError
from logshipper.process import signals

_SHELL = "/bin/sh"
_DEFAULT_PATH = "/bin:/usr/bin"
# as execvp has it
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV, errno.ETIMEDOUT)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn


def exec_command(argv: list[str], environment: "Mapping[str, str]") -> OSError:
    """Execs argv in this process' place, searched for in PATH; returns why it couldn't."""
    name = argv[0]
    places = [name]
    if "/" not in name:
        path = environment.get("PATH", _DEFAULT_PATH)
        places = [os.path.join(folder, name) for folder in path.split(":")] if name else []
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for place in places:
        error = _exec(place, argv, environment)
        if error.errno == errno.ENOEXEC:  # a script without `#!`
            return _exec(_SHELL, [_SHELL, place, *argv[1:]], environment)
        if error.errno == errno.EACCES:
            failure = error  # another folder may have one that can be run
        elif error.errno not in _NOT_THERE:
            return error
    return failure


def _exec(place: str, argv: list[str], environment: "Mapping[str, str]") -> OSError:
    try:
        os.execve(place, argv, environment)
    except OSError as error:
        return error


def become(
    argv: list[str],
    environment: "Mapping[str, str]",
    fds: dict[int, int],
    inherited: signals.InheritedSignals,
    failed: int,
) -> "NoReturn":
    """Become CMD, in the forked process. fds: CMD's descriptor by number; failed: pipe for the
    errno of a failure."""
    try:
        for number, fd in fds.items():
            os.dup2(fd, number)
        inherited.restore()
        error = exec_command(argv, environment)
        os.write(failed, b"%d" % (error.errno or errno.EIO))
    finally:
        os._exit(127)


def await_exec(argv: list[str], pid: int, failed: int) -> None:
    """Wait for `become`, which sends an errno or nothing; close the pipe's end failed.

    pid: our child, CMD or its parent. Raises CaptureError if CMD cannot run, and reaps the child
    then.
    """
    try:
        errno_digits = os.read(failed, 16)
    finally:
        os.close(failed)
    if errno_digits:
        os.waitpid(pid, 0)
        raise refusal(argv, int(errno_digits))


def refusal(argv: list[str], error: int) -> CaptureError:
    """Return the error: exit code 127 for a missing command, else 126."""
    words = f"{argv[0]}: {os.strerror(error)}{_fix(argv[0], error)}"
    return CaptureError(words, 127 if error == errno.ENOENT else 126)


def _fix(name: str, error: int) -> str:
    """Return the usual remedy for a name that cannot run; "" if unknown."""
    try:
        if error == errno.EACCES and "/" in name:
            if os.path.isdir(name):
                return " (it is a folder)"
            if os.path.isfile(name) and not os.access(name, os.X_OK):
                return f" (it isn't executable: `chmod +x {name}`, or begin with what reads it, as in `python {name}`)"
        elif error == errno.ENOENT and "/" in name and os.path.isfile(name):
            return (
                " (it is there; what its first line names isn't, or that line ends as on Windows)"
            )
        elif error == errno.ENOENT and "/" not in name and os.path.isfile(name):
            return f" (the one in this folder is `./{name}`; a script may need its interpreter, as in `python {name}`)"
        elif error == errno.ENOENT and " " in name.strip():
            return " (no quotes around CMD and its arguments: each is a separate word)"
    except ValueError:  # a null character in the name
        pass
    return ""
