"""The faults that fault_campaign.py injects into trainings."""

import os
import resource
import signal
import tempfile
import time

from fault_campaign_job import run_quietly, send

DISK = 32 << 20  # bytes of the file system that becomes full: the checkpoints that are kept, one more, and little else


def mount(folder):
    return run_quietly("mount", "-t", "tmpfs", "-o", f"size={DISK}", "lockstep", folder)


class Fault:
    """A kind of fault; an object of it strikes one job."""

    name = ""
    # Exit codes of the job after which it is started by hand, as who operates it would: of what was asked to end, and of what
    # lasts longer than all restarts.
    ends = frozenset()

    @classmethod
    def hindrance(cls):
        """Why this machine has no such fault; none: it has."""
        return None

    @classmethod
    def wrapper(cls):
        """Returns a prefix for the job's command."""
        return []

    def __init__(self, job):
        self.job = job

    def prepare(self):
        """Before the job is started."""

    def strike(self, moments):
        """While it runs. Returns whether it has hit anybody."""
        raise NotImplementedError

    def mend(self):
        """Ends what lasts. Before the job is started by hand, and at the trial's end."""

    def complaint(self):
        """Returns the message about the fault that is missing in the job's output, if any."""
        return None


class KillWorker(Fault):
    name = "kill -9 of a worker"
    signal = signal.SIGKILL

    def strike(self, moments):
        worker = self.job.pick_worker(moments)
        return worker is not None and send(worker, self.signal)


class StopWorker(KillWorker):
    name = "SIGSTOP of a worker for good"
    signal = signal.SIGSTOP


class StopWorkerShortly(Fault):
    """Not long enough to be given up."""

    name = "SIGSTOP of a worker, SIGCONT within a second"

    def strike(self, moments):
        worker = self.job.pick_worker(moments)
        if worker is None or not send(worker, signal.SIGSTOP):
            return False
        time.sleep(moments.uniform(0.05, 1.0))
        send(worker, signal.SIGCONT)
        return True


class TerminateJob(Fault):
    name = "SIGTERM to the job"
    ends = frozenset({143})
    signal = signal.SIGTERM

    def strike(self, _moments):
        # Before it has workers the launcher is Python that starts, and ends as that does.
        while self.job.launcher.poll() is None and not self.job.workers():
            time.sleep(0.01)
        return self.job.launcher.poll() is None and send(self.job.launcher.pid, self.signal)


class InterruptJob(TerminateJob):
    name = "SIGINT to the job"
    ends = frozenset({130})
    signal = signal.SIGINT


class TerminateWorker(KillWorker):
    name = "SIGTERM to one worker"
    ends = frozenset({143})
    signal = signal.SIGTERM


class LimitFiles(Fault):
    """All workers, or one, can write no file of more than some kilobytes, for a while or for good."""

    name = "no file of more than 50 kB"

    def strike(self, moments):
        limited = []
        workers = self.job.workers()
        if workers and moments.random() < 0.5:
            workers = [moments.choice(workers)]
        for worker in workers:
            try:
                limits = resource.prlimit(worker, resource.RLIMIT_FSIZE)
                resource.prlimit(worker, resource.RLIMIT_FSIZE, (50000, limits[1]))
                limited.append((worker, limits))
            except OSError:
                pass  # It has ended.
        if moments.random() < 0.5:
            time.sleep(moments.uniform(0.1, 2))
            for worker, limits in limited:
                try:
                    resource.prlimit(worker, resource.RLIMIT_FSIZE, limits)
                except OSError:
                    pass
        return bool(limited)


class FillDisk(Fault):
    """The checkpoints' file system has no byte left, for a while or for longer than all restarts."""

    name = "a full file system"
    ends = frozenset({7})

    @classmethod
    def hindrance(cls):
        with tempfile.TemporaryDirectory() as folder:
            if not mount(folder):
                return "mounting a file system is not permitted here"
            run_quietly("umount", folder)
        return None

    def __init__(self, job):
        super().__init__(job)
        self.ballast = job.root / "backup" / "ballast"

    def prepare(self):
        self.job.folder.mkdir()
        if not mount(str(self.job.folder)):
            raise RuntimeError(f"cannot mount a file system on {self.job.folder}")

    def strike(self, moments):
        with open(self.ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
        was_running = self.job.launcher.poll() is None
        if moments.random() < 0.5:
            time.sleep(moments.uniform(0.1, 4))
            self.mend()
        return was_running

    def mend(self):
        self.ballast.unlink(missing_ok=True)


class CutLink(Fault):
    """Nothing that workers send arrives, for a blink or for longer than all restarts."""

    name = "a cut link"
    ends = frozenset({5})

    @classmethod
    def wrapper(cls):
        # In a network namespace that has only the loopback device.
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", *as_root, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]

    @classmethod
    def hindrance(cls):
        try:
            return None if run_quietly(*cls.wrapper(), "true") else "network namespaces are not permitted here"
        except FileNotFoundError:
            return "it takes unshare and ip"

    def set_link(self, state):
        as_root = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        network = f"/proc/{self.job.launcher.pid}/ns/net"
        try:
            if os.readlink(network) == os.readlink("/proc/self/ns/net"):
                return False  # It has none of its own yet, or the process id is another's.
        except OSError:
            return False
        return run_quietly("nsenter", "--target", str(self.job.launcher.pid), *as_root, "--net", "ip", "link", "set", "lo",
                           state)

    def strike(self, moments):
        was_cut = self.job.launcher.poll() is None and self.set_link("down")
        if moments.random() < 0.7:
            time.sleep(moments.choice([moments.uniform(0.05, 1), moments.uniform(1, 15)]))
            self.mend()
        return was_cut

    def mend(self):
        if self.job.launcher.poll() is None:  # Else it has gone with the namespace.
            self.set_link("up")


class DamageCheckpoint(Fault):
    """The power fails, and leaves the newest checkpoint with a flipped bit, or cut short."""

    name = "kill -9 of all, then a flipped bit or a truncation"
    ends = frozenset({-signal.SIGKILL})

    def __init__(self, job):
        super().__init__(job)
        self.damaged = None

    def strike(self, moments):
        if self.job.launcher.poll() is not None:
            return False
        self.job.kill()
        if self.job.launcher.returncode == 0:
            return False  # it came to its end meanwhile: nothing will be started that could find the damage
        checkpoints = self.job.checkpoints()
        if len(checkpoints) < 2:
            return True
        path = moments.choice(sorted(checkpoints[-1].iterdir()))
        damaged = bytearray(path.read_bytes())
        place = moments.randrange(len(damaged))
        if moments.random() < 0.3:
            damaged = damaged[:place]
        else:
            damaged[place] ^= 1 << moments.randrange(8)
        path.write_bytes(damaged)
        self.damaged = path
        return True

    def complaint(self):
        if self.damaged is None or f"passed over a damaged checkpoint: {self.damaged.parent}/" in self.job.output:
            return None
        return f"did not name {self.damaged.name}"


FAULTS = {fault.name: fault for fault in (KillWorker, StopWorker, StopWorkerShortly, TerminateJob, InterruptJob,
                                          TerminateWorker, LimitFiles, FillDisk, CutLink, DamageCheckpoint)}
