#!/bin/sh
# packages.sh VENV WHEELS: build our packages for this distribution and its Slurm into /root/packages, and copies with
# a higher version into /root/newer. Runs in the machine's root by chroot, without a network.
set -eu
cd /usr/src/logshipper
ln -s "$1" .venv
PYTHONPATH=$PWD:$PWD/ingest:$PWD/observe:$PWD/grafana WHEELS=$2 deploy/packages/build.sh deb /root/packages
mkdir /root/newer
for deb in /root/packages/*.deb; do
    dpkg-deb --raw-extract "$deb" /tmp/tree
    sed -i 's/^\(Version: .*-\)1/\12/' /tmp/tree/DEBIAN/control
    name=${deb##*/}
    dpkg-deb --root-owner-group -Zgzip -z1 --build /tmp/tree "/root/newer/$(echo "$name" | sed 's/-1+/-2+/')" >/dev/null
    rm -r /tmp/tree
done
