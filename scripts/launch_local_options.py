"""The command line of launch_local.sh."""

import dataclasses
import os
import re
import shutil

USAGE = """\
usage: launch_local.sh [option...] N program [argument...]
       launch_local.sh [option...] --ps P --workers W program [argument...]

Starts N workers of one training job on this machine: N processes of the program, each with its own TF_CONFIG on a free
port of 127.0.0.1. Each line that worker i writes is printed after "[i] ", its stdout to stdout and its stderr to stderr.

With --ps the job is one of parameter servers: a chief, W workers and P servers, whose lines come after "[chief] ",
"[worker 0] ", "[ps 0] ". It ends with its chief, and goes on without a worker that has failed.

  --chief            worker 0 is the job's chief
  --ps P             so many parameter servers
  --workers W        with --ps: so many workers beside the chief
  --output FOLDER    also writes worker-0.out, worker-0.err, ... to FOLDER, just as the workers wrote them
  --quiet            prints only what worker 0, or the chief of parameter servers, writes
  --grace SECONDS    when a worker fails, the others have this long to end by themselves (10); then they get SIGTERM, and
                     SIGKILL 3 s later. So long a worker may also stay stopped (SIGSTOP) while others are not; then it
                     gets SIGKILL, and has failed
  --max-restarts R   when a worker fails and all have ended, starts them all again, R times at most (0); not after the
                     exit codes 2, 3, 4, 6, 130 and 143, which another start would not mend. With --ps a worker or
                     server that fails is started again by itself, which counts as one of R, and all are when the chief
                     fails
  --min-workers M    with --max-restarts: for each worker that was killed from outside the next start has one less, but
                     M at least (N)
  --help             prints this

The exit code is that of the first worker that failed in the last start (128 + signal where a signal killed it), and 0
where none did; with --ps that of the chief, or of a server that failed for good. SIGINT and SIGTERM are passed on to
the workers, nothing is started any more, and the exit code is 130 or 143 once they have ended; a second one kills them. Exit code 2 is wrong usage; 7 means that the workers could not be
started, or their output not be written.

Examples: launch_local.sh --output logs 2 build/release/bin/train_mnist --strategy multi_worker --epochs 1
          launch_local.sh --ps 2 --workers 2 build/release/bin/train_ctr --strategy parameter_server
"""

MOST_WORKERS = 1024
MOST_RESTARTS = 1000000
LONGEST_GRACE = 86400
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
    command: list = dataclasses.field(default_factory=list)
    executable: str = ""


def parse_folder(text):
    if not text:
        raise LaunchError("--output: expected a folder, but got ''")
    return text


def parse_count(name, what, text, least, most):
    if not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise LaunchError(f"{name}: expected a number of {what} from {least} to {most}, but got '{text}'")
    return int(text)


def parse_grace(text):
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) or float(text) > LONGEST_GRACE:
        raise LaunchError(f"--grace: expected seconds from 0 to {LONGEST_GRACE}, but got '{text}'")
    return float(text)


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


def with_program(options, command):
    if not command:
        raise LaunchError("program: expected a program to run, but got none; --help says more")
    options.command = command
    options.executable = find_executable(command[0])
    return options


def parse(arguments):
    """The options; those after N belong to the program. None where help was asked for."""
    options = Options()
    min_workers = workers = None  # N comes later
    rest = list(arguments)
    while rest and re.match("-[^0-9]", rest[0]):
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if name in ("--output", "--grace", "--max-restarts", "--min-workers", "--ps", "--workers") and not equals and rest:
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
        else:
            raise LaunchError("expected --chief, --ps, --workers, --output, --quiet, --grace, --max-restarts, --min-workers, "
                              f"--help or N, but got '{argument}'")
    if bool(options.servers) != (workers is not None):
        raise LaunchError("--ps, --workers: expected both of them or neither, but got one")
    if options.servers:
        if options.chief or min_workers is not None:
            raise LaunchError(f"{'--chief' if options.chief else '--min-workers'}: expected it without --ps, where there is "
                              "always a chief and a worker that has failed is not waited for, but got both")
        options.workers = workers
        return with_program(options, rest)
    if not rest:
        raise LaunchError("N: expected a number of workers and a program, but got none; --help says more")
    options.workers = parse_count("N", "workers", rest[0], 1, MOST_WORKERS)
    if min_workers is not None:
        options.min_workers = parse_count("--min-workers", "workers", min_workers, 1, options.workers)
        if not options.max_restarts:
            raise LaunchError("--min-workers: expected --max-restarts with it, but got none")
    return with_program(options, rest[1:])
