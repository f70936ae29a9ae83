#!/bin/sh
# Makes .venv/wandb, with what wandb.lock names: `make bench` compares with wandb, which brings thirty packages along.
set -eu
cd "$(dirname "$0")/.."
. requirements/step.sh

key=$(cat requirements/wandb.lock requirements/wandb.sh | cksum)
[ "$(cat .venv/wandb/current 2>/dev/null || :)" != "$key" ] || exit 0

install() {
    rm -rf .venv/wandb
    .venv/bin/python -m venv --without-pip .venv/wandb
    # shellcheck disable=SC2086  # PIP_FLAGS is a list
    .venv/bin/python -m pip --python .venv/wandb/bin/python install --no-input ${PIP_FLAGS---only-binary :all:} \
        --require-hashes -r requirements/wandb.lock
}
step "Installing the $(grep -c '^[a-z].*==' requirements/wandb.lock) packages of requirements/wandb.lock into .venv/wandb (hashes checked)" install
echo "$key" >.venv/wandb/current
