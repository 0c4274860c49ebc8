"""The first process of a SlurmCluster's namespaces: slurm_hosts.py <folder>. It makes the hosts, starts Slurm's programs on them
and prints READY. It ends, and with it all other processes of the namespaces, if its input or one of these programs ends."""

import os
import pathlib
import select
import socket
import subprocess
import sys
import time

READY = "the nodes are idle"
HOSTS = {"node1": "10.79.0.1", "node2": "10.79.0.2"}
START = 60  # seconds
# Slurm takes each host for one with two cores, whatever the machine has, and needs no other service: no accounts, no mail, no
# control groups. The usual ports are free, as the hosts have networks of their own.
CONFIGURATION = """\
ClusterName=lockstep
SlurmctldHost=node1
SlurmctldPort=6817
SlurmdPort=6818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobRequeue=1
KillWait=30
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def run(*command):
    subprocess.run(command, check=True)


def in_host(process):
    """What to put in front of a command for the host whose namespaces a process has."""
    return ["nsenter", f"--target={process.pid}", "--net", "--uts"]


def make_hosts(folder):
    """This process is on node1. Returns a process on node2, which a link connects to it."""
    first, second = HOSTS
    names = folder / "hosts"
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in HOSTS.items()), encoding="ascii")
    # In this mount namespace alone.
    run("mount", "--bind", names, "/etc/hosts")
    socket.sethostname(first)
    other = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname {second} && echo && exec sleep infinity"],
                             stdout=subprocess.PIPE)
    other.stdout.readline()
    run("ip", "link", "add", "link0", "type", "veth", "peer", "name", "link0", "netns", str(other.pid))
    for prefix, name in (([], first), (in_host(other), second)):
        run(*prefix, "ip", "address", "add", f"{HOSTS[name]}/24", "dev", "link0")
        run(*prefix, "ip", "link", "set", "link0", "up")
        run(*prefix, "ip", "link", "set", "lo", "up")
    return other


def start_slurm(folder, other):
    """Returns Slurm's programs by their names. Their output goes to <name>.log."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    nodes = "\n".join(f"NodeName={name} NodeAddr={address} CPUs=2 State=UNKNOWN" for name, address in HOSTS.items())
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, nodes=nodes), encoding="utf-8")
    commands = {
        "munged": ["munged", "--foreground", f"--socket={folder}/munge.socket", f"--key-file={key}",
                   f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munged.log"],
        "slurmctld": ["slurmctld", "-D", "-c"],
        "slurmd on node1": ["slurmd", "-D", "-N", "node1"],
        "slurmd on node2": [*in_host(other), "slurmd", "-D", "-N", "node2"],
    }
    started = {}
    for name, command in commands.items():
        with open(folder / f"{name}.log", "wb") as log:
            started[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # Slurm's programs end if munged does not answer yet.
        deadline = time.monotonic() + START
        while not (folder / "munge.socket").exists() and started["munged"].poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    return started


def are_idle():
    states = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%T"], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, check=False)
    return states.stdout.split() == ["idle"] * len(HOSTS)


def main():
    folder = pathlib.Path(sys.argv[1])
    other = make_hosts(folder)
    started = start_slurm(folder, other)
    names = {process.pid: name for name, process in started.items()}
    deadline = time.monotonic() + START
    while not are_idle():
        if time.monotonic() > deadline:
            sys.exit(f"the nodes are not idle after {START} s")
        time.sleep(0.1)
    print(READY, flush=True)
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        # It inherits all processes whose parents have ended.
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] in names:
                sys.exit(f"{names[ended[0]]} has ended: {os.waitstatus_to_exitcode(ended[1])}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
