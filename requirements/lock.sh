#!/bin/sh
# Writes demo.lock, dev.lock and those of programs of others, each in an environment of its own (requirements/tool.sh,
# telegraf.sh), anew from pyproject.toml, by uv in a throw-away environment (`make lock`).
# What is locked stays as it is where it still fits; UPGRADE=1 takes the newest of everything.
set -eu
cd "$(dirname "$0")/.."
. requirements/step.sh

python=$(requirements/venv.sh --python)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

install_uv() { "$python" -m venv "$scratch/venv" && "$scratch/venv/bin/python" -m pip install --no-input uv; }
step "Installing uv into a throw-away environment" install_uv
"$python" -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["build-system"]["requires"]))' >"$scratch/build.in"

# compile NAME ARGUMENT...: requirements/NAME.lock; the header names `make lock`, and no index or path goes into it
compile() {
    name=$1
    shift
    step "Locking requirements/$name.lock" \
        "$scratch/venv/bin/uv" pip compile --universal --python-version 3.11 --generate-hashes --no-annotate \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" ${UPGRADE:+--upgrade} \
        --extra plot "$@" pyproject.toml "$scratch/build.in" --output-file "requirements/$name.lock"
}

compile dev --extra grafana --extra parquet --group pyproject.toml:demo --group pyproject.toml:test --group pyproject.toml:bench --group pyproject.toml:dev
# pinned to the versions of dev.lock: one environment serves both
grep '^[a-z].*==' requirements/dev.lock | sed 's/ *\\$//' >"$scratch/pins.txt"
compile demo --group pyproject.toml:demo --constraint "$scratch/pins.txt"
for name in wandb qcg kubernetes telegraf; do
    step "Locking requirements/$name.lock" \
        "$scratch/venv/bin/uv" pip compile --universal --python-version 3.11 --generate-hashes --no-annotate \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" ${UPGRADE:+--upgrade} \
        --group "pyproject.toml:$name" --output-file "requirements/$name.lock"
done
# of balsam only what its analytics needs, of xtlib its source: their .in have all of it
for name in balsam xtlib; do
    step "Locking requirements/$name.lock" \
        "$scratch/venv/bin/uv" pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-deps \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" ${UPGRADE:+--upgrade} \
        "requirements/$name.in" --output-file "requirements/$name.lock"
done
