#!/bin/sh
# Makes .venv and brings it up to a lock file; a warm run finds that nothing is to be done.
#   requirements/venv.sh demo|dev     .venv has what that lock names, and logshipper itself
#   requirements/venv.sh --python     prints the Python that .venv is (or would be) made by, and nothing else
# PYTHON chooses it; PIP_FLAGS replaces the flags of pip that say where packages may come from.
set -eu
cd "$(dirname "$0")/.."
. requirements/step.sh

PIP_FLAGS=${PIP_FLAGS---only-binary :all:}  # a wheel missing for this machine should fail at once, with a clear reason
NOBODY=65534

say() { printf '%s\n' "$*"; }
die() { printf 'make: %s\n' "$@" >&2; exit 1; }

# Prints the path of a Python that is new enough and complete; fails where it isn't.
real_python() {
    "$1" -c '
import sys
sys.version_info >= (3, 11) or sys.exit(1)
import venv, sqlite3, ssl, zlib, termios, fcntl
print(sys.executable)' 2>/dev/null </dev/null
}

has_pip() { "$1" -c 'from ensurepip import bootstrap' >/dev/null 2>&1 </dev/null; }

# Root's tests run in part as an ordinary user, who needs a Python that isn't below /root.
anybody_may_run() {
    [ "$(id -u)" -ne 0 ] || "$1" -c "
import os, sys
os.chdir('/'); os.setgroups([]); os.setgid($NOBODY); os.setuid($NOBODY)
os.execv(sys.executable, [sys.executable, '-I', '-c', 'import sqlite3'])" >/dev/null 2>&1 </dev/null
}

candidates() {
    for name in python3.14 python3.13 python3.12 python3.11 python3; do
        for path in "$(command -v "$name" 2>/dev/null || :)" "/usr/local/bin/$name" "/usr/bin/$name"; do
            [ -n "$path" ] && [ -x "$path" ] && real_python "$path" || :
        done
    done | awk '!seen[$0]++'
}

choose_python() {
    if [ -n "${PYTHON-}" ]; then
        real_python "$PYTHON" && return
        die "PYTHON=$PYTHON isn't a Python 3.11 or newer with venv, sqlite3 and ssl"
    fi
    found=$(candidates)
    [ -n "$found" ] || die "no Python 3.11 or newer is on the PATH." \
        "Install one (Debian, Ubuntu: apt install python3 python3-venv; clusters: often module load python), or say which: make ... PYTHON=/path/to/python3"
    IFS='
'
    for path in $found; do has_pip "$path" && anybody_may_run "$path" && say "$path" && return; done
    for path in $found; do has_pip "$path" && say "$path" && return; done
    for path in $found; do say "$path" && return; done
}

make_venv() {
    rm -rf .venv
    "$python" -m venv .venv && return
    say "venv alone can't (Debian keeps ensurepip in python3-venv); trying pip, virtualenv, uv"
    rm -rf .venv
    "$python" -m venv --without-pip .venv && "$python" -m pip --python .venv/bin/python install -q pip && return
    rm -rf .venv
    "$python" -m virtualenv -q .venv && return
    virtualenv -q -p "$python" .venv && return
    uv venv -q --seed --python "$python" .venv && return
    rm -rf .venv
    return 1
}

key() { { pwd; cat "requirements/$1.lock" pyproject.toml requirements/venv.sh; .venv/bin/python -VV; } | cksum; }
is_current() { [ -f ".venv/current-$1" ] && [ "$(cat ".venv/current-$1")" = "$(key "$1")" ]; }

main() {
    wanted=
    if [ -n "${PYTHON-}" ]; then wanted=$(choose_python); fi
    made_by=$(cat .venv/made-by 2>/dev/null || :)
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1 </dev/null || [ "${wanted:-$made_by}" != "$made_by" ]; then
        python=$(choose_python)
        step "Making .venv by $python ($("$python" -c 'import platform; print(platform.python_version())'))" make_venv ||
            die "no virtual environment could be made by $python." \
                "Debian, Ubuntu: apt install python3-venv; elsewhere: pip install virtualenv; or another one: make ... PYTHON=/path/to/python3"
        say "$python" >.venv/made-by
    fi
    # dev.lock holds all that demo.lock holds, in the same versions
    if is_current "$1" || is_current dev; then return; fi
    # shellcheck disable=SC2086  # PIP_FLAGS is a list
    step "Installing the $(grep -c '^[a-z].*==' "requirements/$1.lock") packages of requirements/$1.lock (hashes checked)" \
        .venv/bin/python -m pip install --no-input --no-compile $PIP_FLAGS --require-hashes -r "requirements/$1.lock" ||
        die "the packages could not be installed (see above): is there a network, and a wheel for this Python and machine?" \
            "Behind a mirror pip's own settings count (PIP_INDEX_URL, pip.conf). Another Python: make ... PYTHON=python3.12"
    # on all cores, unlike pip's; for the demonstration what it imports is compiled as it goes
    [ "$1" = demo ] || step "Compiling them" sh -c '.venv/bin/python -m compileall -q -j 0 .venv/lib logshipper ingest observe grafana || :'
    # then plain path entries: setuptools' import hook would cost every start of logshipper some milliseconds
    step "Installing logshipper itself into .venv" \
        .venv/bin/python -m pip install --no-input --no-index --no-deps --no-build-isolation --editable .
    for entry in .venv/lib/python*/site-packages/__editable__.logshipper-*.pth; do
        printf '%s\n' "$PWD" "$PWD/ingest" "$PWD/observe" "$PWD/grafana" >"$entry"
    done
    key "$1" >".venv/current-$1"
}

case ${1-} in
    --python) if [ -s .venv/made-by ] && [ -z "${PYTHON-}" ]; then cat .venv/made-by; else choose_python; fi ;;
    demo | dev) main "$1" ;;
    *) die "usage: requirements/venv.sh demo|dev|--python" ;;
esac
