#!/bin/sh
# Before tests that root runs on Debian or Ubuntu: programs that some tests drive (tmux, an editor, a pager).
# Never for an ordinary user, never fatal: tests of programs that aren't there are skipped and say so.
set -eu
cd "$(dirname "$0")/.."
. requirements/step.sh

[ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0

missing=
for package in ${LOGSHIPPER_TEST_PACKAGES-tmux less vim-tiny}; do
    command -v "${package%-tiny}" >/dev/null 2>&1 ||
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing="$missing $package"
done
if [ ! -e .venv ]; then
    python=$(requirements/venv.sh --python 2>/dev/null) && "$python" -c 'from ensurepip import bootstrap' >/dev/null 2>&1 </dev/null ||
        missing="$missing python3-venv"
fi
[ -n "$missing" ] || exit 0

apt_install() { apt-get -qq update && apt-get -qq install --no-install-recommends "$@"; }
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list
step "Installing$missing by apt-get, for the tests (you are root; LOGSHIPPER_TEST_PACKAGES= prevents it)" apt_install $missing ||
    echo "Tests of these are left out."
