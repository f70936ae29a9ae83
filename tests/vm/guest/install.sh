#!/bin/sh
# Install our packages and the tests' environment into the machine's root. Runs by chroot, without a network.
set -eu
src=/usr/src/logshipper
guest=$src/tests/vm/guest

dpkg -i /root/packages/*.deb
install -m 644 -t /etc/systemd/system "$guest"/*.service
install -m 644 "$guest/agent.toml" /etc/logshipper/agent.toml
install -m 644 "$src/deploy/compose/loki/loki.yaml" /etc/loki.yaml
# the second node has its own slurmd, spool and agent
for unit in slurmd logshipper-agent; do
    cp "$(find /usr/lib/systemd/system /etc/systemd/system -name $unit.service | head -n 1)" /etc/systemd/system/$unit-n2.service
    install -D -m 644 "$guest/$unit-n2.conf" /etc/systemd/system/$unit-n2.service.d/n2.conf
done
install -m 644 "$guest/agent-n2.toml" /etc/logshipper/agent-n2.toml
install -d -m 711 /var/spool/logshipper-n2
echo 'SLURMD_OPTIONS="-N n1"' >/etc/default/slurmd
install -D -m 644 -t /etc/slurm "$guest/slurm.conf" "$guest/cgroup.conf"
install -D -m 644 -t /usr/local/lib/vm "$guest"/*.py "$src/tests/vm/driver.py" "$src/tests/slurm/tools/fuse_home.py"
install -m 755 -t /usr/local/lib/vm "$guest/pair.sh"

echo n1 >/etc/hostname
printf '127.0.0.1 localhost\n10.11.12.1 n1\n' >/etc/hosts
echo '/dev/vda / ext4 defaults 0 1' >/etc/fstab
printf 'dummy\nvirtio_console\n' >/etc/modules-load.d/vm.conf
# a remaining job's scope would delay the shutdown by 90 s, with or without the plugin
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\nDefaultTimeoutStopSec=20s\n' >/etc/systemd/system.conf.d/vm.conf
install -d -m 700 -o slurm -g slurm /var/lib/slurm/slurmctld /var/spool/logshipper-ended
install -d -m 755 /var/lib/slurm/slurmd-n1 /var/lib/slurm/slurmd-n2 /var/log/slurm
chown slurm: /var/log/slurm
for number in $(seq 100 "$1"); do
    echo "u$number:x:3$number:3$number::/home/u$number:/bin/bash" >>/etc/passwd
    echo "u$number:x:3$number:" >>/etc/group
    echo "u$number:*:19000:0:99999:7:::" >>/etc/shadow
    install -d -m 700 -o "3$number" -g "3$number" "/home/u$number"
done
systemctl --quiet enable vm-network vm-driver loki logshipper-agent logshipper-agent-n2 munge slurmctld slurmd slurmd-n2
systemctl --quiet mask getty@tty1 serial-getty@ttyS0 apt-daily.timer apt-daily-upgrade.timer fstrim.timer e2scrub_all.timer
systemctl --quiet set-default multi-user.target
