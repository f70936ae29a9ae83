#!/bin/sh
# requirements/tool.sh NAME: makes .venv/NAME, with what NAME.lock names: a program of others that tests or benchmarks
# run, whose needs aren't ours.
set -eu
cd "$(dirname "$0")/.."
. requirements/step.sh

name=$1
key=$(cat "requirements/$name.lock" requirements/tool.sh | cksum)
[ "$(cat ".venv/$name/current" 2>/dev/null || :)" != "$key" ] || exit 0

install() {
    rm -rf ".venv/$name"
    .venv/bin/python -m venv --without-pip ".venv/$name"
    # shellcheck disable=SC2086  # PIP_FLAGS is a list
    .venv/bin/python -m pip --python ".venv/$name/bin/python" install --no-input --no-deps ${PIP_FLAGS---only-binary :all:} \
        --require-hashes -r "requirements/$name.lock"
}
step "Installing the $(grep -c '^[a-z].*==' "requirements/$name.lock") packages of requirements/$name.lock into .venv/$name (hashes checked)" install
echo "$key" >".venv/$name/current"
