"""Checks of the machine after all cases, and its description of itself."""

import json
from collections.abc import Mapping, Sequence

from tests.vm.machine import Machine

# scripts that print unwanted leftovers, by name
LEFT = {
    "processes of ours": "pgrep -a '^logshipper' | grep -v 'logshipper-agent\\|bin/logshipper-agent run' || :",
    "processes of users": "ps -eo user:20,pid,args | grep -E '^u[0-9]{3} ' || :",
    "captures in the spool": "ls /var/spool/logshipper /var/spool/logshipper-n2 | grep @ || :",
    "cgroups of jobs": "find /sys/fs/cgroup/system.slice -mindepth 2 -maxdepth 2 -path '*slurmstepd.scope/*' -type d "
    "! -name system ! -name logshipper",
    "units that failed": "systemctl list-units --failed --plain --no-legend | grep -v n[12]_slurmstepd.scope || :",
    "processes of ours that a job's limit killed": "dmesg | grep -i 'killed process.*(logship' || :",
    "faults in the agent's log": "journalctl -q -u 'logshipper-agent*' | grep -E 'Traceback|fault of logshipper' || :",
}
ABOUT = """. /etc/os-release; systemd=$(systemctl --version | sed -n '1s/^systemd \\([0-9]*\\).*/\\1/p')
echo "$PRETTY_NAME, kernel $(uname -r), systemd $systemd, $(slurmd -V), $(/opt/logshipper/bin/python -V)," \\
    "$(stat -fc %T /sys/fs/cgroup)"
systemd-analyze security --no-pager logshipper-agent.service | tail -n 1
"""
INFO, TROUBLE = "6", "34"
USUAL = ("ready: ", "stopped", "Loki takes everything", "[loki] Loki takes everything")
LOGS = """journalctl -q -o short-monotonic | tail -n 4000; echo; echo slurmctld:; cat /var/log/slurm/slurmctld.log
echo; echo slurmd:; cat /var/log/slurm/slurmd-*.log"""


def about(machine: Machine) -> str:
    """Return the relevant versions, and systemd's exposure rating of the agent's unit."""
    return machine.output(ABOUT).strip()


def find(machine: Machine) -> list[str]:
    """Return messages about leftovers."""
    problems = []
    for name, script in LEFT.items():
        output = machine.output(script).strip()
        if output:
            problems.append(f"{name}: {output[:1500]}")
    return problems + journal_faults(machine.output(JOURNAL))


# the unit also has systemd's own child, before it becomes the agent
JOURNAL = "journalctl -q -o json _SYSTEMD_UNIT=logshipper-agent.service SYSLOG_IDENTIFIER=logshipper-agent"


def journal_faults(text: str) -> list[str]:
    """Return messages about entries of the agent with a wrong priority or transport in the journal.
    text: one JSON entry per line."""
    documents = [json.loads(line) for line in text.splitlines()]
    entries = [(document["MESSAGE"], document["PRIORITY"]) for document in documents]
    faults = [
        f"priority {priority}: {message}"
        for message, priority in entries
        if priority not in (INFO if message.startswith(USUAL) else TROUBLE)
        or message.startswith(("<", "20"))
    ]
    if not any(message.startswith("ready:") for message, _ in entries):
        faults.append("the agent never said that it is ready")
    faults += [
        f"by {document['_TRANSPORT']}, without fields: {document['MESSAGE']}"
        for document in documents
        if document["MESSAGE"].startswith("ready:") and document["_TRANSPORT"] != "journal"
    ]
    return faults


def logs(machine: Machine) -> str:
    """Return logs for analysis."""
    return machine.run(LOGS, secs=120).output  # a controller has no log of slurmd


def figures(files: Sequence[Mapping[str, bytes]]) -> str:
    """Return memory (current, peak) and processor time of a job's cgroup without and with the
    plugin. files: output of the case `accounted` in both runs."""
    words = []
    for name, own in zip(("without", "with"), files, strict=False):
        memory = [int(line) / 1e6 for line in own.get("memory.txt", b"").split()]
        cpu = own.get("cpu.txt", b"").split()
        usec = int(cpu[1]) if len(cpu) > 1 else 0
        words.append(
            f"{name} the plugin {'/'.join(f'{mb:.1f}' for mb in memory)} MB, {usec / 1e6:.2f} s CPU"
        )
    return "; ".join(words)
