#!/bin/sh
# Makes the environments of all programs of others that tests run, one after another.
set -eu
cd "$(dirname "$0")/.."

for name in qcg kubernetes ansible balsam xtlib trackers docs release runtime; do requirements/tool.sh "$name"; done
requirements/telegraf.sh
