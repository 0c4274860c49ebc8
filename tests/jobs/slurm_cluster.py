"""A real Slurm of a test's own, with two nodes. It leaves the machine's services, configuration and network alone."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import slurm_hosts
import workers

PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge", "ip": "iproute2",
            "unshare": "util-linux", "nsenter": "util-linux"}
NAMESPACES = ["--mount", "--pid", "--net", "--uts", "--ipc"]
FAREWELL = 10  # seconds in which the kernel ends the processes of the namespaces


class NotPossible(Exception):
    """This machine has no Slurm, or makes no hosts."""


class SlurmCluster:
    """The nodes are node1 and node2: hosts with these names, addresses of their own and a link between them, which are
    namespaces of this machine. Commands run on node1. close() ends Slurm and all that it has started, as does the end of this
    process: the first process of the namespaces ends with its input, and the kernel then kills the others."""

    def __init__(self):
        missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)})
        if missing:
            raise NotPossible(f"needs the Debian packages {', '.join(missing)}")
        if os.geteuid() != 0:
            raise NotPossible("only root can start a Slurm and make hosts")
        tried = subprocess.run(["unshare", *NAMESPACES, "--fork", "--mount-proc", "true"], capture_output=True, text=True,
                               check=False)
        if tried.returncode != 0:
            raise NotPossible(f"hosts cannot be made here: {tried.stderr.strip()}")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-slurm-"))
        self.folder.chmod(0o711)  # munged wants a socket that all could reach
        self.munge_socket = str(self.folder / "munge.socket")
        self.environment = workers.clean_environment() | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.first = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", sys.executable, "-B", slurm_hosts.__file__,
             str(self.folder)],
            env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        printed = []
        for line in self.first.stdout:
            if line.rstrip("\n") == slurm_hosts.READY:
                break
            printed.append(line)
        else:
            text = "".join(printed) + self.logs()
            self.close()
            raise RuntimeError(f"Slurm did not start: {text}")
        (child,) = pathlib.Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children").read_text(encoding="ascii").split()
        self.namespace = pathlib.Path(f"/proc/{child}/ns/pid").readlink()
        self.enter = ["nsenter", f"--target={child}", *NAMESPACES, "--"]

    def logs(self):
        return "".join(f"--- {path.name}\n{path.read_text(encoding='utf-8', errors='replace')}"
                       for path in sorted(self.folder.glob("*.log")))

    def processes(self):
        """Those of the namespaces, by their numbers outside of them."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (path / "ns/pid").readlink() == self.namespace:
                    found.append(int(path.name))
        return found

    def tasks(self, program, **variables):
        """The processes that run the file `program` with these variables."""
        wanted = {f"{name}={value}".encode() for name, value in variables.items()}
        found = []
        for process in self.processes():
            with contextlib.suppress(OSError):
                if os.path.samefile(f"/proc/{process}/exe", program) and \
                        wanted <= set(pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")):
                    found.append(process)
        return found

    def run(self, *command, limit=120, **variables):
        """Runs a command on node1. Its output and its errors are one text."""
        return subprocess.run([*self.enter, *map(str, command)], env=self.environment | variables, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False)

    def ask(self, *command, **variables):
        """The output of a command that has to succeed."""
        result = self.run(*command, **variables)
        if result.returncode != 0:
            raise AssertionError(f"{command}: exit code {result.returncode}\n{result.stdout}\n{self.logs()}")
        return result.stdout

    def submit(self, *arguments, **variables):
        """Returns the number of a job of sbatch."""
        return self.ask("sbatch", "--parsable", *arguments, **variables).strip()

    def job(self, number):
        """What scontrol shows of a job, by the names of its fields."""
        shown = self.ask("scontrol", "--oneliner", "show", "job", number)
        return dict(field.split("=", 1) for field in shown.split() if "=" in field)

    def wait_for(self, number, condition, limit=300):
        """Waits until the `condition` holds for the fields of a job, and returns them."""
        deadline = time.monotonic() + limit
        while not condition(job := self.job(number)):
            if time.monotonic() > deadline:
                raise AssertionError(f"a job has not come so far: {job}\n{self.logs()}")
            time.sleep(0.2)
        return job

    def close(self):
        """Ends all of its processes, and returns those that would not end."""
        self.first.stdin.close()
        try:
            self.first.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            self.first.kill()  # --kill-child
            self.first.wait()
        self.first.stdout.close()
        deadline = time.monotonic() + FAREWELL
        while (left := hasattr(self, "namespace") and self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)
        return left or []
