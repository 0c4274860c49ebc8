"""Tells what a program that hangs is doing: the threads of all its processes, and the load of each GPU."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

PROC = pathlib.Path("/proc")
SECONDS_OF_SAMPLE = 1  # in which threads' CPU time is counted
SECONDS_FOR_NVIDIA_SMI = 20  # it waits if the driver hangs
SECONDS_FOR_GDB = 90  # of all processes together; it reads the symbols of LibTorch in each


def read(path):
    """Returns a file's text, or why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").rstrip("\0\n")
    except OSError as error:
        return f"({error.strerror})"


def stat(folder):
    """Returns the fields of a process's or a thread's stat after its name, or None if it has ended."""
    try:
        return (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None


def descendants(ancestor):
    """Returns the ids of all living processes that `ancestor` has started, directly or not, parents first."""
    children = {}
    for folder in PROC.glob("[0-9]*"):
        fields = stat(folder)
        if fields and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = sorted(children.get(ancestor, []))
    for process in found:  # It grows meanwhile.
        found += sorted(children.get(process, []))
    return found


def cpu_ticks(thread):
    """Returns the thread's CPU time so far, or None if the thread has ended."""
    fields = stat(thread)
    return int(fields[11]) + int(fields[12]) if fields else None


def threads_of(process):
    return sorted((PROC / str(process) / "task").glob("*"), key=lambda thread: int(thread.name))


def describe_thread(thread, ticks_before, seconds):
    ticks = cpu_ticks(thread)
    if ticks is None:
        return f"thread {thread.name} has ended\n"
    share = 100 * (ticks - ticks_before) / (seconds * os.sysconf("SC_CLK_TCK"))
    states = [line for line in read(thread / "status").splitlines() if line.startswith("State:")]
    lines = [f"thread {thread.name} {read(thread / 'comm')}: {' '.join(''.join(states).split())}, {share:.0f} % of a CPU, "
             f"waits in the kernel's {read(thread / 'wchan')}"]
    lines += [f"    {line}" for line in read(thread / "stack").splitlines()]
    return "\n".join(lines) + "\n"


def describe_processes(processes):
    """Yields a text for each process. It stops none of them, so that it shows them as they hang."""
    before = {thread: cpu_ticks(thread) or 0 for process in processes for thread in threads_of(process)}
    begin = time.monotonic()
    time.sleep(SECONDS_OF_SAMPLE)
    seconds = time.monotonic() - begin
    for process in processes:
        folder = PROC / str(process)
        parent = (stat(folder) or ["", "?"])[1]
        command = " ".join(read(folder / "cmdline").split("\0"))
        threads = [describe_thread(thread, before[thread], seconds) for thread in threads_of(process) if thread in before]
        yield f"== process {process}, started by {parent}: {command}\n" + "".join(threads)


class Tool:
    """A program whose output is wanted but, as it may hang itself, not waited for beyond a deadline."""

    def __init__(self, *command):
        self.name = command[0]
        self.output = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        self.process, self.error = None, ""
        try:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT)
        except OSError as error:
            self.error = f"(cannot start {self.name}: {error.strerror})\n"

    def text(self, deadline):
        if self.process is not None:
            try:
                self.process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.error = f"({self.name} was ended: it took too long)\n"
        self.output.seek(0)
        return self.output.read().decode(errors="replace") + self.error


def describe_gpus():
    load = "index,name,utilization.gpu,utilization.memory,memory.used,power.draw,clocks.sm"
    tools = [Tool("nvidia-smi", f"--query-gpu={load}", "--format=csv"), Tool("nvidia-smi")]
    deadline = time.monotonic() + SECONDS_FOR_NVIDIA_SMI
    return "== GPUs\n" + "".join(tool.text(deadline) for tool in tools)


def describe_stacks(processes):
    """Yields the stacks of each process. gdb stops a process while it reads it: all are read at once, so that none of them
    sees that another one has stopped."""
    if shutil.which("gdb") is None:
        yield "== no stacks of the program's own functions, because gdb is not installed\n"
        return
    tools = [(process, Tool("gdb", "-p", str(process), "-batch", "-nx", "-iex", "set debuginfod enabled off",
                            "-ex", "set backtrace limit 100", "-ex", "thread apply all bt")) for process in processes]
    deadline = time.monotonic() + SECONDS_FOR_GDB
    for process, tool in tools:
        yield f"== stacks of process {process}\n" + tool.text(deadline)


def write_report(path, title, processes):
    """Writes each part as soon as it is known."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{title}\n")
        for part in describe_processes(processes):
            file.write(f"\n{part}")
        file.write(f"\n{describe_gpus()}")
        file.flush()
        for part in describe_stacks(processes):
            file.write(f"\n{part}")
            file.flush()
