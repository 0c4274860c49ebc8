"""How launch_local.sh starts its workers: what each of them finds, and how its end is told."""

import collections
import ctypes
import errno
import functools
import glob
import json
import os
import re
import resource
import secrets
import signal
import socket
import subprocess

from launch_local_options import LaunchError, NO_RESOURCES, WRONG_USAGE, ask_nvidia_smi
from launch_local_output import STDERR, STDOUT, Stream

# Variables of other launchers, or of another launch_local.sh around this one, about the job.
OTHER_LAUNCHERS = re.compile(
    "(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_.*|PET_.*|"
    "SLURM_(PROCID|LOCALID|NODEID|GTIDS|NTASKS.*|NPROCS|TASKS_PER_NODE|NNODES|NODELIST|JOB_NUM_NODES|JOB_NODELIST|STEP_.*)|"
    "OMPI_(COMM_WORLD|UNIVERSE)_.*|PMIX?_.*|TF_CONFIG|"
    "LOCKSTEP_(LISTEN_FD|JOB_ID|RESTART_COUNT)")
PR_SET_PDEATHSIG = 1
SYSFS = "/sys"  # tests replace it


def tasks_of(options, count):
    """Type and index of each process of a start with `count` workers."""
    if options.servers:
        counts = {"chief": 1, "worker": count, "ps": options.servers}
    else:
        counts = {"chief": int(options.chief), "worker": count - int(options.chief)}
    return [(job, index) for job, size in counts.items() for index in range(size)]


def tf_configs(tasks, ports):
    """The TF_CONFIG of each task, which has the port of the same place."""
    cluster = {}
    for (job, _), port in zip(tasks, ports):
        cluster.setdefault(job, []).append(f"127.0.0.1:{port}")
    return [json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}) for job, index in tasks]


def job_environment():
    """This process's own, without what other launchers said, and with the job's token and name."""
    environment = {name: value for name, value in os.environ.items() if not OTHER_LAUNCHERS.fullmatch(name)}
    if not environment.get("LOCKSTEP_JOB_TOKEN"):
        environment["LOCKSTEP_JOB_TOKEN"] = secrets.token_hex(32)
    # Never one that was set before: who finds the name in a lock may take it for that of an earlier start of this job.
    environment["LOCKSTEP_JOB_ID"] = secrets.token_hex(16)
    # The workers share the cores: OpenMP's threads should sleep while they wait, instead of spinning.
    if "GOMP_SPINCOUNT" not in environment:
        environment.setdefault("OMP_WAIT_POLICY", "passive")
    return environment


def parse_cpus(text):
    """Returns the CPUs of a list such as 0-3,8. Raises ValueError for an empty one."""
    cpus = set()
    for entry in text.split(","):
        first, _, last = entry.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def read_line(*path):
    with open(os.path.join(SYSFS, *path), encoding="ascii") as file:
        return file.readline().strip()


def numa_node(bus_id):
    """Returns the number of the node that a PCI device is on, or -1 if unknown. `bus_id` is nvidia-smi's."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        return int(read_line("bus/pci/devices", f"{int(domain, 16):04x}:{rest}", "numa_node"))
    except (OSError, ValueError):
        return -1


def nodes_of_gpus(gpus, has_pci_order):
    """Returns the NUMA node of each GPU, or -1 if unknown. Without `has_pci_order`, CUDA's numbers may differ from
    nvidia-smi's, so that a number tells nothing."""
    try:
        lines = ask_nvidia_smi("--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader").stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return [-1] * len(gpus)
    listed = [entry.groups() for entry in map(re.compile(r"([0-9]+), (GPU-\S+), (\S+)").fullmatch, lines) if entry]

    def is_meant(gpu, index, uuid):
        # CUDA also takes the beginning of a UUID.
        return has_pci_order and int(gpu) == int(index) if gpu.isdecimal() else uuid.startswith(gpu)

    nodes = []
    for gpu in gpus:
        found = [bus_id for index, uuid, bus_id in listed if is_meant(gpu, index, uuid)]
        nodes.append(numa_node(found[0]) if len(found) == 1 else -1)
    return nodes


def cpus_of_node(node):
    """Returns no CPUs if the node is unknown, or has memory only."""
    try:
        return parse_cpus(read_line(f"devices/system/node/node{node}/cpulist"))
    except (OSError, ValueError):
        return set()


def cpus_near_gpus(gpus, has_pci_order):
    """Returns the CPUs of each GPU's NUMA node, for the GPU's worker to keep to. None means all CPUs: the node is unknown,
    or it has fewer CPUs than the share of its workers, whose threads would then compete for them."""
    if not gpus or len(glob.glob(os.path.join(SYSFS, "devices/system/node/node[0-9]*"))) < 2:
        return [None] * len(gpus)
    usable = os.sched_getaffinity(0)
    nodes = nodes_of_gpus(gpus, has_pci_order)
    near = {}
    for node, workers in collections.Counter(nodes).items():
        cpus = usable & cpus_of_node(node)
        near[node] = cpus if len(cpus) * len(gpus) >= len(usable) * workers else None
    return [near[node] for node in nodes]


def raise_file_limit(needed):
    """Returns the limits of open files that the workers are to have: those from before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise LaunchError(f"N: so many workers take {needed} open files, but the limit is {hard}", NO_RESOURCES)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return soft, hard


def prepare_worker(launcher, prctl, file_limit, cpus):
    """Runs in the worker before it becomes the program: from here on it dies with the launcher."""
    if prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != launcher:  # It died before it could be said.
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, file_limit)
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError:  # They have been taken away. The worker runs elsewhere as well.
            pass


def reserve_ports(count):
    """Sockets, each bound to a port of its own, which refuse connections until a worker listens."""
    sockets = []
    try:
        for _ in range(count):
            sockets.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            sockets[-1].bind(("127.0.0.1", 0))
    except OSError as error:
        for reserved in sockets:
            reserved.close()
        raise LaunchError(f"cannot reserve {count} ports of 127.0.0.1: {error.strerror}", NO_RESOURCES) from error
    return sockets


def reserve_port(port):
    """The same for a port that a process had which has ended: its connections may linger there."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError as error:
        bound.close()
        raise LaunchError(f"cannot reserve port {port} of 127.0.0.1 again: {error.strerror}", NO_RESOURCES) from error
    return bound


class Worker:
    def __init__(self, index, task, process, streams):
        self.index = index
        # "worker 3", where all are workers whatever their task, else "chief" or "ps 1"
        self.name = f"worker {index}" if task is None else "chief" if task[0] == "chief" else f"{task[0]} {task[1]}"
        self.prefix = str(index) if task is None else self.name
        self.job = None if task is None else task[0]
        self.process = process
        self.streams = streams
        self.code = None  # as subprocess has it: less than 0 for a signal
        self.sent = set()  # signals from the launcher, while it ran

    def send_to_group(self, number):
        """To every process of the worker. Its id is not another's until it is reaped."""
        try:
            os.killpg(self.process.pid, number)
        except OSError:
            pass

    def is_stopped(self):
        """Whether SIGSTOP or the like keeps it from running; a debugger's stop does not count."""
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb") as stat:
                return stat.read().rpartition(b") ")[2][:1] == b"T"
        except OSError:
            return False

    def end(self):
        if self.code >= 0:
            return f"exit code {self.code}"
        known = -self.code in list(signal.Signals)
        return f"killed by {signal.Signals(-self.code).name if known else f'signal {-self.code}'}"

    def __str__(self):
        return f"{self.name} (pid {self.process.pid}) {self.end()}"


class WorkerStarter:
    """Starts the workers of a job, as often as it takes: with one token and one name, and each time on new ports."""

    def __init__(self, options):
        self.options = options
        self.environment = job_environment()
        if options.gpus and "CUDA_VISIBLE_DEVICES" not in self.environment:
            self.environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # GPUs have nvidia-smi's numbers
        self.cpus = cpus_near_gpus(options.gpus, self.environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID")
        # Each has a socket and then two pipes, and may have two files.
        self.file_limit = raise_file_limit(4 * len(tasks_of(options, options.workers)) + 64)
        self.tasks, self.configs, self.ports, self.generation = [], [], [], 0  # of the last start
        self.prctl = ctypes.CDLL(None, use_errno=True).prctl
        self.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4

    def open_files(self, indices, goes_on):
        """The descriptors of these workers' own files, which every later start continues to use."""
        if not self.options.output:
            return [(None, None)] * len(indices)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if goes_on else os.O_TRUNC)
        try:
            os.makedirs(self.options.output, exist_ok=True)
            return [
                tuple(os.open(os.path.join(self.options.output, f"{self.file_name(index)}.{end}"), flags, 0o666)
                      for end in ("out", "err")) for index in indices
            ]
        except OSError as error:
            raise LaunchError(
                f"--output: expected a folder to write to, but got '{error.filename}': {error.strerror}") from error

    def start(self, count, generation):
        """Yields each worker as soon as it runs the program. If one does not start, those before it continue."""
        self.tasks, self.generation = tasks_of(self.options, count), generation
        files = self.open_files(range(len(self.tasks)), generation > 0)
        sockets = reserve_ports(len(self.tasks))
        for bound, (job, _) in zip(sockets, self.tasks):
            if job == "ps":  # its connections linger at the port, which is to be bound again when it is started again
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.ports = [bound.getsockname()[1] for bound in sockets]
        self.configs = tf_configs(self.tasks, self.ports)
        for index, bound in enumerate(sockets):
            yield self.start_task(index, bound, files[index])

    def start_again(self, worker):
        """Starts one task of the last start again, at its port."""
        files = self.open_files([worker.index], True)
        return self.start_task(worker.index, reserve_port(self.ports[worker.index]), files[0])

    def file_name(self, index):
        if not self.options.servers:
            return f"worker-{index}"
        job, number = self.tasks[index]
        return job if job == "chief" else f"{job}-{number}"

    def gpu_of(self, index):
        """Returns the position of this task's GPU in --gpus; None if it has none."""
        if not self.options.gpus:
            return None
        if not self.options.servers:
            return index
        job, number = self.tasks[index]
        return number if job == "worker" else None

    def start_task(self, index, bound, files):
        own = {
            "TF_CONFIG": self.configs[index],
            "LOCKSTEP_LISTEN_FD": str(bound.fileno()),
            "LOCAL_RANK": str(index),
            "LOCAL_WORLD_SIZE": str(len(self.tasks)),
            "LOCKSTEP_RESTART_COUNT": str(self.generation),
        }
        gpu = self.gpu_of(index)
        if self.options.gpus:
            own["CUDA_VISIBLE_DEVICES"] = "" if gpu is None else self.options.gpus[gpu]
        cpus = None if gpu is None else self.cpus[gpu]
        process = self.start_process(index, {**self.environment, **own}, bound.fileno(), cpus)
        # The worker has run the program by now, which alone holds the socket: the port is free when it dies, and
        # connections to it then fail instead of waiting for a listener that nobody serves.
        bound.close()
        printed_to = (None, None) if self.options.quiet and index != 0 else (STDOUT, STDERR)
        task = self.tasks[index] if self.options.servers else None
        return Worker(index, task, process, list(map(Stream, (process.stdout, process.stderr), files, printed_to)))

    def start_process(self, index, environment, inherited, cpus):
        try:
            return subprocess.Popen(
                self.options.command, executable=self.options.executable, env=environment, bufsize=0,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[inherited],
                start_new_session=True,
                preexec_fn=functools.partial(prepare_worker, os.getpid(), self.prctl, self.file_limit, cpus))
        except (OSError, subprocess.SubprocessError) as error:
            no_resources = getattr(error, "errno", None) in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
            raise LaunchError(
                f"program: cannot start '{self.options.command[0]}' as worker {index}: {error}",
                NO_RESOURCES if no_resources else WRONG_USAGE) from error
