#!/usr/bin/env python3
"""Starts the workers of one training job on this machine, and looks after them, for launch_local.sh; see usage_of()."""

import signal

# Until there are handlers a signal ends this process as any other, without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# pylint: disable=wrong-import-position
import errno
import os
import selectors
import sys
import time

from launch_local_options import LaunchError, NO_RESOURCES, PEER_LOST, parse, usage_of
from launch_local_output import Printer, STDERR, STDOUT, write_all
from launch_local_restarts import forbids_another_start, goes_on_without, workers_of_next_start
from launch_local_worker import WorkerStarter

SECONDS_TO_KILL = 3  # from SIGTERM to SIGKILL
SECONDS_OF_ONE_SIGNAL = 0.2  # `timeout` sends each signal twice: to its child, and to the child's group
MOST_QUEUED = 1 << 22  # bytes; with more to print, no worker's output is read on
PIPE_CAPACITY, MOST_IN_PIPE = 1 << 16, 1 << 20  # bytes; a worker may raise the one to the other
# Signals that the workers get in place of one that they may not handle, and of the loss of the reader of their output.
PASSED_ON_AS = {signal.SIGHUP: signal.SIGTERM, signal.SIGPIPE: signal.SIGTERM}


class Launcher:
    def __init__(self, options, name):
        self.options = options
        self.name = name  # the beginning of messages
        self.starter = WorkerStarter(options)
        self.generation = 0  # how often the job was started before
        self.restarts = 0  # of the job, and of workers and servers by themselves
        self.to_start_again = []  # workers and servers of a job that continues
        self.launch_error = None
        self.running = {}  # workers by process id
        self.workers = []  # of this generation
        self.first_failure = None
        self.deadlines = []  # (time, signal that the workers get at it), the next one first
        self.stopped_until = {}  # process ids, and when they get SIGKILL
        self.children_have_changed = False
        self.signals = []  # received, and not yet passed on
        self.stopped_by = None
        self.stopped_at = 0.0
        self.killed = False
        self.reported = set()  # descriptors whose errors have been told
        self.output_is_lost = False
        wake_reader, self.wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.alarms, self.everything = selectors.DefaultSelector(), selectors.DefaultSelector()
        for selector in (self.alarms, self.everything):
            selector.register(wake_reader, selectors.EVENT_READ)
        self.printer = Printer(self.wake)

    def wake(self):
        try:
            os.write(self.wake_writer, b"\0")
        except BlockingIOError:
            pass  # It is woken already.

    def say(self, text):
        self.printer.print_line(STDERR, f"{self.name}: {text}".encode(errors="surrogateescape"))

    def handle_signals(self):
        signal.set_wakeup_fd(self.wake_writer, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
                signal.signal(number, lambda received, _: self.signals.append(received))
        signal.signal(signal.SIGCHLD, self.note_child)

    def note_child(self, *_):
        self.children_have_changed = True

    # Start

    def start(self, count):
        """Starts all workers, or none that stays."""
        self.workers, self.first_failure, self.deadlines, self.stopped_until = [], None, [], {}
        self.to_start_again = []
        try:
            for worker in self.starter.start(count, self.generation):
                self.add(worker)
        except LaunchError as error:
            self.launch_error = error
            self.say(str(error))
            self.send_to_all(signal.SIGKILL)
            self.killed = True

    def add(self, worker):
        self.workers.append(worker)
        self.running[worker.process.pid] = worker
        for stream in worker.streams:
            os.set_blocking(stream.pipe.fileno(), False)
            self.everything.register(stream.pipe, selectors.EVENT_READ, (worker, stream))

    # Output

    def print_line(self, worker, stream, line, end=b"\n"):
        self.printer.print_line(stream.printed_to, f"[{worker.prefix}] ".encode() + line, end)

    def read(self, worker, stream):
        """Reads once, as much as there is. Returns whether there may be more."""
        try:
            data = os.read(stream.pipe.fileno(), PIPE_CAPACITY)
        except BlockingIOError:
            return False
        if not data:
            self.close(worker, stream)
            return False
        if stream.file is not None:
            try:
                write_all(stream.file, data)
            except OSError as error:
                self.say(f"cannot write to --output for {worker.name} any more: {error.strerror}")
                self.output_is_lost = True
                os.close(stream.file)
                stream.file = None
        if stream.printed_to is not None:
            for line, end in stream.lines(data):
                self.print_line(worker, stream, line, end)
        return True

    def close(self, worker, stream):
        line = stream.last_line()
        if line:
            self.print_line(worker, stream, line)
        self.everything.unregister(stream.pipe)
        stream.pipe.close()
        if stream.file is not None:
            os.close(stream.file)

    def look_after_printer(self):
        for descriptor, error in list(self.printer.errors.items()):
            if descriptor in self.reported:
                continue
            self.reported.add(descriptor)
            self.output_is_lost = True
            if error.errno == errno.EPIPE:
                # As a program alone would end that writes to a reader who has left.
                if self.stopped_by is None:
                    self.stop(signal.SIGPIPE)
            elif descriptor == STDOUT:
                self.say(f"cannot write to stdout any more: {error.strerror}")

    # End

    def send_to_all(self, number):
        for worker in self.running.values():
            worker.sent.add(number)
            worker.send_to_group(number)

    def stop(self, number):
        if self.stopped_by is None:
            self.stopped_by, self.stopped_at = number, time.monotonic()
            self.send_to_all(PASSED_ON_AS.get(number, number))
        elif time.monotonic() > self.stopped_at + SECONDS_OF_ONE_SIGNAL:
            self.say(f"a second signal: SIGKILL to the workers that have not ended ({len(self.running)})")
            self.send_to_all(signal.SIGKILL)
            self.killed = True

    def has_failed(self, worker):
        if self.killed:
            return False
        if self.stopped_by is None:
            return worker.code != 0
        number = PASSED_ON_AS.get(self.stopped_by, self.stopped_by)
        return worker.code not in (0, 128 + number, -number, *self.options.retryable)

    def reap(self):
        """Takes note of the workers that have ended."""
        ended = []
        while self.running:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                break
            worker = self.running.pop(found.si_pid, None)
            if worker is None:  # a child of the process that became this launcher
                os.waitpid(found.si_pid, 0)
                continue
            worker.send_to_group(signal.SIGKILL)  # what it has started and left behind
            worker.code = worker.process.wait()
            ended.append(worker)
        # Of those that ended since the last look, one that lost its peer is no cause but an effect.
        effects = (PEER_LOST, *self.options.retryable)
        for worker in sorted(ended, key=lambda worker: (worker.code in effects, worker.index)):
            for stream in worker.streams:
                # All that it wrote is in its pipe by now. Another process that still has the pipe may write on forever.
                for _ in range(MOST_IN_PIPE // PIPE_CAPACITY):
                    if stream.pipe.closed or not self.read(worker, stream):
                        break
            if self.first_failure is None and self.has_failed(worker) and not self.goes_on_after(worker):
                self.first_failure = worker
                self.give_time_to_end()
                if self.running:
                    self.say(f"{worker.name} has failed, the others have {self.options.grace:g} s to end")
            elif worker.job == "chief" and not self.deadlines:
                self.give_time_to_end()  # they were told

    def give_time_to_end(self):
        self.to_start_again = []
        end = time.monotonic() + self.options.grace
        self.deadlines = [(end, signal.SIGTERM), (end + SECONDS_TO_KILL, signal.SIGKILL)]

    def goes_on_after(self, worker):
        """Whether a job of parameter servers does, with this one started again or without it."""
        if worker.job in (None, "chief") or self.stopped_by is not None:
            return False
        if self.has_chief_ended():
            return True
        may_start = not forbids_another_start(worker, self.options.retryable)
        if may_start and self.restarts < self.options.max_restarts:
            self.restarts += 1
            self.to_start_again.append(worker)
            self.say(f"{worker.name} {worker.end()}: it is started again, restart {self.restarts} of "
                     f"{self.options.max_restarts}")
            return True
        if goes_on_without(worker):
            self.say(f"{worker.name} {worker.end()}: the job continues without it")
            return True
        return False

    def has_chief_ended(self):
        return any(worker.job == "chief" and worker.code is not None for worker in self.workers)

    def start_ended_again(self):
        """Once nothing is left to print: a process with threads is not to be forked."""
        if not self.to_start_again or self.printer.queued:
            return
        self.printer.stop()
        try:
            while self.to_start_again:
                ended = self.to_start_again.pop(0)
                for stream in ended.streams:
                    if not stream.pipe.closed:
                        self.close(ended, stream)
                started = self.starter.start_again(ended)
                self.workers.remove(ended)
                self.add(started)
        except LaunchError as error:
            self.say(str(error))
            self.first_failure = ended
            self.give_time_to_end()
        finally:
            self.printer.start()

    def look_for_stopped(self):
        """Kills workers that stay stopped (SIGSTOP) while others run or have ended: these do not wait for them any more, or
        wait in vain. Once a worker has failed that is sure. A job of which all are stopped has been put aside by somebody."""
        if self.children_have_changed:
            self.children_have_changed = False
            stopped = {process for process, worker in self.running.items() if worker.is_stopped()}
            if self.stopped_by is None and self.first_failure is not None:
                for process in stopped:
                    self.kill_stopped(process)
            if len(stopped) == len(self.workers) or self.stopped_by is not None or self.first_failure is not None:
                stopped = set()
            for process in stopped - self.stopped_until.keys():
                self.stopped_until[process] = time.monotonic() + self.options.grace
                self.say(f"{self.running[process].name} is stopped: it has {self.options.grace:g} s to continue")
            for process in self.stopped_until.keys() - stopped:
                del self.stopped_until[process]
        for process, deadline in list(self.stopped_until.items()):
            if deadline <= time.monotonic():
                del self.stopped_until[process]
                self.kill_stopped(process)

    def kill_stopped(self, process):
        worker = self.running[process]
        self.say(f"SIGKILL to {worker.name}, which is stopped")
        worker.sent.add(signal.SIGKILL)
        worker.send_to_group(signal.SIGKILL)

    def seconds_to_deadline(self):
        """None: there is no deadline."""
        moments = [*self.stopped_until.values(), *(moment for moment, _ in self.deadlines[:1])]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def wait(self, timeout):
        """Reads and prints what workers write, until something happens: at the latest at the timeout."""
        selector = self.alarms if self.printer.queued > MOST_QUEUED else self.everything
        for key, _ in selector.select(timeout):
            if key.data is None:
                os.read(key.fd, PIPE_CAPACITY)
            else:
                self.read(*key.data)

    def watch(self):
        """Until all workers have ended."""
        while self.running:
            self.wait(self.seconds_to_deadline())
            self.look_after_printer()
            self.reap()
            while self.signals and self.running:
                self.stop(self.signals.pop(0))
            self.look_for_stopped()
            self.start_ended_again()
            while self.running and self.deadlines and self.deadlines[0][0] <= time.monotonic():
                _, number = self.deadlines.pop(0)
                self.say(f"{number.name} to the workers that have not ended ({len(self.running)})")
                self.send_to_all(number)
        for worker in self.workers:
            for stream in worker.streams:
                if not stream.pipe.closed:
                    self.close(worker, stream)

    def workers_to_start_again(self):
        """How many; 0: the job is over."""
        most, failed = self.options.max_restarts, self.first_failure
        if not most or failed is None or self.stopped_by is not None:
            return 0
        lasting = next((one for one in self.workers if forbids_another_start(one, self.options.retryable)), None)
        if lasting is not None:
            self.say(f"{lasting.name} {lasting.end()}: the job is not started again")
            return 0
        if self.restarts >= most:
            which = f"restart {most}" if self.options.servers else f"generation {most}"
            self.say(f"{failed.name} {failed.end()}: {which} of {most} was the last")
            return 0
        count = self.options.workers
        if not self.options.servers:
            count = workers_of_next_start(self.workers, self.options.min_workers)
        fewer = f", with {count} of {self.options.workers} workers" if count < self.options.workers else ""
        self.say(f"{failed.name} {failed.end()}: the job is started again as generation {self.generation + 1} of "
                 f"{most}{fewer}")
        return count

    def summarize(self):
        if self.launch_error is None and any(worker.code != 0 for worker in self.workers):
            for worker in self.workers:
                self.say(str(worker))

    def finish_printing(self):
        # A signal ends the wait for a reader that has stalled.
        while self.printer.queued and not self.signals:
            for key, _ in self.alarms.select():
                os.read(key.fd, PIPE_CAPACITY)
        self.look_after_printer()

    def exit_code(self):
        if self.launch_error is not None:
            # The command line was right if the job could be started before.
            return NO_RESOURCES if self.generation else self.launch_error.code
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        if self.first_failure is not None:
            code = self.failure_to_report().code
            return code if code > 0 else 128 - code
        return NO_RESOURCES if self.output_is_lost else 0

    def failure_to_report(self):
        """The first failure. If it asks for another start and another worker's failure forbids one, that worker."""
        failed = self.first_failure
        if failed.code not in self.options.retryable:
            return failed
        return next((one for one in self.workers if forbids_another_start(one, self.options.retryable)), failed)

    def run(self):
        """Returns the exit code once all workers have ended and all output is written."""
        self.handle_signals()
        count = self.options.workers
        while True:
            self.start(count)
            self.printer.start()
            self.watch()
            count = self.workers_to_start_again()
            if not count:
                self.summarize()
            self.finish_printing()
            if count and self.signals:
                self.stop(self.signals.pop(0))
            if not count or self.stopped_by is not None:
                return self.exit_code()
            # A process with threads is not to be forked.
            self.printer.stop()
            self.generation += 1
            self.restarts += 1


def main():
    # No file that is opened here is to become stdin, stdout or stderr where the caller has closed them.
    while os.open(os.devnull, os.O_RDWR) <= STDERR:
        pass
    name = os.environ.pop("LOCKSTEP_LAUNCHER", "launch_local.sh")  # not for the workers
    try:
        options = parse(sys.argv[1:])
        if options is None:
            sys.stdout.write(usage_of(name))
            return 0
        return Launcher(options, name).run()
    except LaunchError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.code


if __name__ == "__main__":
    sys.exit(main())
