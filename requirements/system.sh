#!/bin/sh
# Before `make test-all`, as root on Debian or Ubuntu: programs that some tests drive (tmux, an editor, a pager, mandoc, shells, nginx,
# InfluxDB, Alertmanager, GNU parallel, ssh, Open MPI, Chromium; where the tests of the Slurm parts are asked for, Slurm,
# munge, Grid Engine, and what plugin and packages are built and tried by). No service is started, now or at the next boot.
# Never for an ordinary user, never fatal: tests of programs that aren't there are skipped, or fail, and say so.
set -eu
cd "$(dirname "$0")/.."
. requirements/step.sh

[ "${LOGSHIPPER_TEST_PACKAGES-}" != no ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0

# PACKAGE=SERVICE, where the service isn't called as the package
SERVICES="nginx influxdb prometheus-alertmanager munge slurmctld slurmd gridengine-master gridengine-exec openssh-server=ssh"
POLICY=/usr/sbin/policy-rc.d

# PACKAGE=PROGRAM, where the program isn't called as the package; a file where it begins with /
programs="tmux less vim-tiny=vim mandoc zsh fish nginx influxdb=influxd prometheus-alertmanager parallel openssh-client=ssh openssh-server=sshd
    openmpi-bin=mpirun.openmpi python3-apt=/usr/lib/python3/dist-packages/apt"
browser=chromium
python=python3=/usr/bin/python3 # that packages are for; Ubuntu 22.04's is too old
! grep -q '^VERSION_ID="22.04"' /etc/os-release || python=python3.11=/usr/bin/python3.11
slurm="slurmctld slurmd slurm-client=srun munge=munged libslurm-dev=/usr/include/slurm/spank.h
    make gcc libc6-dev=/usr/include/stdio.h valgrind rpm=rpmbuild debootstrap $python
    libpam-slurm-adopt=/lib/security/pam_slurm_adopt.so
    systemd=systemd-analyze gridengine-master=sge_qmaster gridengine-exec=sge_execd gridengine-client=qsub"
[ "${LOGSHIPPER_TEST_SLURM-}" = required ] || slurm=
[ "${LOGSHIPPER_TEST_BROWSER-}" != off ] || browser=

is_there() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 ;;
    esac
}

is_installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q ' installed$'; }

missing=
for wanted in ${LOGSHIPPER_TEST_PACKAGES-$programs $browser $slurm}; do
    package=${wanted%%=*}
    is_there "${wanted#*=}" || is_installed "$package" || missing="$missing $package"
done
if [ ! -e .venv ]; then
    python=$(requirements/venv.sh --python 2>/dev/null) && "$python" -c 'from ensurepip import bootstrap' >/dev/null 2>&1 </dev/null ||
        missing="$missing python3-venv"
fi
[ -n "$missing" ] || exit 0

# a package's script asks this policy before it starts a service; enabled ones would start at the next boot
services=
for service in $SERVICES; do case "$missing " in *" ${service%%=*} "*) services="$services ${service#*=}" ;; esac; done
own_policy=
if [ -n "$services" ] && [ ! -e "$POLICY" ]; then
    own_policy=$POLICY
    trap 'rm -f "$own_policy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    printf '#!/bin/sh\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
fi

apt_install() { apt-get -qq update && apt-get -qq install --no-install-recommends --no-remove "$@"; }
export DEBIAN_FRONTEND=noninteractive
echo "As you are root, these Debian packages are installed for the tests (LOGSHIPPER_TEST_PACKAGES=no prevents it):$missing"
# shellcheck disable=SC2086  # a list
step "Installing them by apt-get" apt_install $missing ||
    echo "Tests of these are left out."
# shellcheck disable=SC2086  # a list
[ -z "$services" ] || ! command -v systemctl >/dev/null 2>&1 || systemctl --quiet disable $services >/dev/null 2>&1 || :
