#!/bin/sh
# Writes dev.lock, demo.lock, runtime.lock and those of programs of others, each in an environment of its own
# (requirements/tool.sh, telegraf.sh), from pyproject.toml, by uv in a throw-away environment (`make lock`).
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
        "$@" --output-file "requirements/$name.lock"
    # a release candidate is neither below 3.12 nor above it to an old pip; Ubuntu 22.04's Python 3.11 is one
    sed -i "s/python_full_version \([<>]=*\) '\(3\.[0-9]*\)'/python_version \1 '\2'/" "requirements/$name.lock"
}

# .venv's, with what builds the wheel
compile dev --extra plot --extra grafana --extra otlp --extra parquet --extra notify --group pyproject.toml:demo --group pyproject.toml:test \
    --group pyproject.toml:bench --group pyproject.toml:dev pyproject.toml "$scratch/build.in"
# pinned to the versions of dev.lock: one environment serves both, and what is installed is what is tested
grep '^[a-z].*==' requirements/dev.lock | sed 's/ *\\$//' >"$scratch/pins.txt"
compile demo --extra plot --group pyproject.toml:demo --constraint "$scratch/pins.txt" pyproject.toml "$scratch/build.in"
# of an installation by root, and of the packages; nobody could add extras to theirs. apprise needs tzdata on Windows only
compile runtime --extra grafana --extra otlp --extra notify --no-emit-package tzdata --constraint "$scratch/pins.txt" pyproject.toml
for name in docs release wandb qcg kubernetes ansible telegraf trackers; do
    compile "$name" --group "pyproject.toml:$name"
done
# of balsam only what its analytics needs, of xtlib its source: their .in have all of it
for name in balsam xtlib; do
    compile "$name" --no-deps "requirements/$name.in"
done
