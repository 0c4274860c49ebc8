"""The command line of launch_local.sh."""

import dataclasses
import itertools
import os
import re
import shutil
import subprocess

# {name} is the launcher as it was called.
USAGE = """\
usage: {name} [option...] N program [argument...]
       {name} [option...] --gpus N|all program [argument...]
       {name} [option...] --ps P --workers W program [argument...]

Starts N worker processes of one training job on this machine. Each is told its place in the
cluster by TF_CONFIG and listens on a free port of 127.0.0.1. Every line that worker i writes is
printed after "[i] ": its stdout to stdout, its stderr to stderr.

With --ps, starts a job of parameter servers: a chief, W workers and P servers. Their lines come
after "[chief] ", "[worker 0] " and "[ps 0] ". The job ends when its chief ends, and continues if a
worker fails.

Options:
  --chief            give worker 0 the role of the chief
  --ps P             start P parameter servers
  --workers W        with --ps: start W workers
  --gpus N|all       start one worker for each of N GPUs, or for each GPU; with --ps, use it instead
                     of --workers. Each worker sees only its own GPU, and keeps it when restarted.
                     Servers and their chief see no GPU. Uses the GPUs of CUDA_VISIBLE_DEVICES in
                     that order if it is set. Otherwise uses GPUs 0, 1, ... as nvidia-smi numbers
                     them, with CUDA_DEVICE_ORDER=PCI_BUS_ID unless you set it. Binds each worker to
                     the CPUs of its GPU's NUMA node if the node is known and large enough
  --output FOLDER    also write the output of each worker to FOLDER: worker-0.out, worker-0.err, ...
  --quiet            print the output of worker 0 only, or of the chief of parameter servers
  --grace SECONDS    after a worker fails, give the others this time to end by themselves; then send
                     SIGTERM, and SIGKILL 3 s later (default: 10). A worker that is stopped
                     (SIGSTOP) for this time while others run is killed and counts as failed
  --max-restarts R   after a failure, wait until all workers have ended and start them again, at
                     most R times (default: 0). Exit codes 2, 3, 4, 6, 130 and 143 end the job
                     instead, because a restart would not help; the program's own
                     --retryable-exit-code always allows one. With --ps, a worker or server that
                     fails is restarted alone, and all are if the chief fails
  --min-workers M    with --max-restarts: start one worker fewer for each worker that was killed
                     from outside, but at least M (default: N)
  -h, --help         print this help

Exit codes: 0 if no worker failed. Otherwise the exit code of the first worker that failed in the
last start, or 128 + the signal that killed it. With --ps, that of the chief, or of a server that
failed for good. 2 for wrong usage. 7 if the workers could not be started or their output could not
be written.

SIGINT and SIGTERM go to the workers, and nothing is restarted. Once all have ended, the exit code
is 130 or 143. A second signal kills the workers.

Examples:
  {name} 2 train_images --epochs 1
  {name} --gpus all --output logs train_images --model mobilenet_v2
  {name} --ps 2 --workers 2 train_ctr --strategy parameter_server
"""


def usage_of(name):
    """The help text of the launcher when it is called by this name."""
    return USAGE.format(name=name)


MOST_WORKERS = 1024
MOST_RESTARTS = 1000000
LONGEST_GRACE = 86400
SECONDS_FOR_NVIDIA_SMI = 60
WRONG_USAGE, PEER_LOST, NO_RESOURCES = 2, 5, 7  # exit codes


class LaunchError(Exception):
    """Ends the launcher with this message and exit code."""

    def __init__(self, message, code=WRONG_USAGE):
        super().__init__(message)
        self.code = code


@dataclasses.dataclass
class Options:
    chief: bool = False
    output: str = ""
    quiet: bool = False
    grace: float = 10
    max_restarts: int = 0
    min_workers: int = 0  # 0: every start has as many
    servers: int = 0  # 0: it is no job of parameter servers
    workers: int = 0
    gpus: list = dataclasses.field(default_factory=list)  # one for each worker, as CUDA_VISIBLE_DEVICES names it
    command: list = dataclasses.field(default_factory=list)
    executable: str = ""
    retryable: tuple = ()  # the program's --retryable-exit-code if it has one


def parse_folder(text):
    if not text:
        raise LaunchError("--output: expected a folder, but got ''")
    return text


def parse_count(name, what, text, least, most, or_else=""):
    if not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise LaunchError(f"{name}: expected {or_else}a number of {what} from {least} to {most}, but got '{text}'")
    return int(text)


def parse_grace(text):
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) or float(text) > LONGEST_GRACE:
        raise LaunchError(f"--grace: expected seconds from 0 to {LONGEST_GRACE}, but got '{text}'")
    return float(text)


def visible_gpus(text):
    """Returns the GPUs that this text of CUDA_VISIBLE_DEVICES leaves visible. CUDA ignores all after an invalid one."""
    names = (name.strip() for name in text.split(","))
    gpus = list(itertools.takewhile(re.compile(r"[0-9]+|(GPU|MIG)-\S+").fullmatch, names))
    for name in gpus:
        if gpus.count(name) > 1:
            raise LaunchError(f"--gpus: expected different GPUs in CUDA_VISIBLE_DEVICES, but got '{text}'")
    return gpus


def ask_nvidia_smi(*arguments):
    """Returns the completed process. Raises OSError or subprocess.SubprocessError."""
    return subprocess.run(
        ["nvidia-smi", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        timeout=SECONDS_FOR_NVIDIA_SMI)


def listed_gpus():
    """Returns the numbers that nvidia-smi lists."""
    try:
        process = ask_nvidia_smi("-L")
    except FileNotFoundError as error:
        raise LaunchError("--gpus: expected nvidia-smi in PATH, which lists the GPUs, or CUDA_VISIBLE_DEVICES, which names "
                          "them, but found neither") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"--gpus: cannot list the GPUs: {error}") from error
    if process.returncode != 0:
        said = (process.stdout + process.stderr).strip().partition("\n")[0]
        raise LaunchError(f"--gpus: expected nvidia-smi -L to list the GPUs, but it failed with exit code "
                          f"{process.returncode}: {said}")
    return re.findall("^GPU ([0-9]+):", process.stdout, re.MULTILINE)


def choose_gpus(text):
    """Returns the GPUs of --gpus, one for each worker."""
    wanted = None if text == "all" else parse_count("--gpus", "GPUs", text, 1, MOST_WORKERS, or_else="all or ")
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        gpus, has = listed_gpus(), "nvidia-smi lists"
    else:
        gpus, has = visible_gpus(given), f"CUDA_VISIBLE_DEVICES='{given}' names"
    if not gpus:
        raise LaunchError(f"--gpus: expected a GPU, but {has} none")
    if wanted is not None and wanted > len(gpus):
        raise LaunchError(f"--gpus: expected at most {len(gpus)}, as {has} no more, but got '{text}'")
    return gpus[:wanted]


def find_executable(program):
    """The file that a shell would run for `program`."""
    found = shutil.which(program)
    if found:
        return found
    if not program or "/" not in program:
        problem = "is no program in PATH"
    elif os.path.isdir(program):
        problem = "is a folder"
    elif os.path.exists(program):
        problem = "is not executable"
    else:
        problem = "does not exist"
    raise LaunchError(f"program: expected an executable file, but '{program}' {problem}")


def retryable_exit_code(arguments):
    """The --retryable-exit-code among a program's arguments, as a tuple of one or none. The last one counts."""
    found = re.findall(r"^--retryable-exit-code[=\n]([0-9]{3})$", "\n".join(arguments), re.MULTILINE)
    return tuple(map(int, found[-1:]))


def with_program(options, command):
    if not command:
        raise LaunchError("program: expected a program to run, but got none; --help says more")
    options.command = command
    options.executable = find_executable(command[0])
    options.retryable = retryable_exit_code(command[1:])
    return options


def parse(arguments):
    """The options; those after N belong to the program. None where help was asked for."""
    options = Options()
    min_workers = workers = gpus = None  # N comes later
    rest = list(arguments)
    while rest and re.match("-[^0-9]", rest[0]):
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if (name in ("--output", "--grace", "--max-restarts", "--min-workers", "--ps", "--workers", "--gpus") and not equals
                and rest):
            value = rest.pop(0)
        if argument in ("--help", "-h"):
            return None
        if argument == "--chief":
            options.chief = True
        elif argument == "--quiet":
            options.quiet = True
        elif name == "--output":
            options.output = parse_folder(value)
        elif name == "--grace":
            options.grace = parse_grace(value)
        elif name == "--max-restarts":
            options.max_restarts = parse_count(name, "restarts", value, 0, MOST_RESTARTS)
        elif name == "--min-workers":
            min_workers = value
        elif name == "--ps":
            options.servers = parse_count(name, "parameter servers", value, 1, MOST_WORKERS)
        elif name == "--workers":
            workers = parse_count(name, "workers", value, 1, MOST_WORKERS)
        elif name == "--gpus":
            gpus = value
        else:
            raise LaunchError("expected --chief, --ps, --workers, --gpus, --output, --quiet, --grace, --max-restarts, "
                              f"--min-workers, --help or N, but got '{argument}'")
    if gpus is not None:
        options.gpus = choose_gpus(gpus)
        if workers not in (None, len(options.gpus)):
            raise LaunchError(f"--workers: expected {len(options.gpus)} with --gpus {gpus}, which starts one worker for each "
                              f"GPU, but got {workers}")
        workers = len(options.gpus)
    elif bool(options.servers) != (workers is not None):
        raise LaunchError("--ps, --workers: expected both of them or neither, but got one")
    if options.servers:
        if options.chief or min_workers is not None:
            raise LaunchError(f"{'--chief' if options.chief else '--min-workers'}: expected it without --ps, where there is "
                              "always a chief and a worker that has failed is not waited for, but got both")
        options.workers = workers
        return with_program(options, rest)
    if gpus is None:
        if not rest:
            raise LaunchError("N: expected a number of workers and a program, but got none; --help says more")
        workers = parse_count("N", "workers", rest.pop(0), 1, MOST_WORKERS)
    elif rest and re.fullmatch("[0-9]+", rest[0]):
        raise LaunchError(f"N: expected the program after --gpus, which starts one worker for each GPU, but got '{rest[0]}'")
    options.workers = workers
    if min_workers is not None:
        options.min_workers = parse_count("--min-workers", "workers", min_workers, 1, options.workers)
        if not options.max_restarts:
            raise LaunchError("--min-workers: expected --max-restarts with it, but got none")
    return with_program(options, rest)
