#!/bin/sh
# Set one of two machines' address on the link and its configuration, first of all at each start. The kernel's command
# line has its role: vm.role=controller or vm.role=node.
set -eu
role=$(sed 's/.*\bvm\.role=\([a-z]*\).*/\1/' /proc/cmdline)
case $role in
controller) name=c1 address=10.11.13.1 ;;
node) name=n1 address=10.11.13.2 ;;
*)
    echo "vm.role=$role on the kernel's command line: it is controller or node" >&2
    exit 1
    ;;
esac

modprobe virtio_net
for _ in $(seq 60); do
    [ ! -e /sys/class/net/eth0 ] || break
    sleep 0.5
done
ip addr replace "$address/24" dev eth0
ip link set eth0 up

[ ! -e /etc/vm-pair ] || exit 0
echo "$name" >/etc/hostname
echo "$name" >/proc/sys/kernel/hostname
printf '127.0.0.1 localhost\n10.11.13.1 c1\n10.11.13.2 n1\n' >/etc/hosts
# a node must survive a cut of 5 minutes: Slurm's default is 300 s, and it polls at intervals
sed -i -e 's/^SlurmctldHost=.*/SlurmctldHost=c1/' -e 's/^SlurmdTimeout=.*/SlurmdTimeout=900/' \
    -e '/^NodeName=/d' -e '/^PartitionName=/d' /etc/slurm/slurm.conf
cat >>/etc/slurm/slurm.conf <<'END'
NodeName=n1 CPUs=128 RealMemory=8000
PartitionName=main Default=YES Nodes=n1 MaxTime=60 State=UP
END
sed -i 's|^url = .*|url = "http://10.11.13.1:3100"|' /etc/logshipper/agent.toml
[ "$role" = controller ] || sed -i -e '/^\[slurm\]/d' -e '/^ended_dir/d' /etc/logshipper/agent.toml
mkdir -p /etc/systemd/system/loki.service.d
printf '[Service]\nEnvironment=LOKI_ADDRESS=0.0.0.0\n' >/etc/systemd/system/loki.service.d/pair.conf
systemctl daemon-reload
touch /etc/vm-pair
