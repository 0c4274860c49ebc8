"""How launch_local.sh prints what its workers write."""

import itertools
import os
import re
import threading

LONGEST_LINE = 1 << 20  # bytes; a longer one is printed as several
STDOUT, STDERR = 1, 2
ERASE_LINE = b"\x1b[K"


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]


class Printer:
    """Writes to stdout and stderr in a thread of its own: a reader that stalls holds up no signal and no deadline."""

    def __init__(self, wake):
        self.thread = None
        self.is_ending = False
        self.wake = wake  # called after each write, in the thread
        self.terminals = {
            descriptor for descriptor in (STDOUT, STDERR)
            if os.isatty(descriptor) and os.environ.get("TERM") not in (None, "dumb")
        }
        self.over_progress = False  # the cursor stands at the start of a progress line
        self.changed = threading.Condition()
        self.queue = []  # (descriptor, bytes)
        self.queued = 0  # bytes, those that are being written included
        self.errors = {}  # of each descriptor that is written to no more

    def start(self):
        self.is_ending = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def stop(self):
        """Ends the thread, which writes everything before that. Lines may be printed on; start() writes them."""
        with self.changed:
            self.is_ending = True
            self.changed.notify()
        self.thread.join()

    def print_line(self, descriptor, line, end=b"\n"):
        """`end` is a carriage return for a progress line, which on a terminal the next line takes the place of."""
        if descriptor not in self.terminals:
            end = b"\n"
        else:
            if self.over_progress:
                line = ERASE_LINE + line
            self.over_progress = end == b"\r"
        with self.changed:
            self.queue.append((descriptor, line + end))
            self.queued += len(line) + len(end)
            self.changed.notify()

    def run(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.queue or self.is_ending)
                if not self.queue:
                    return
                batch, self.queue = self.queue, []
            for descriptor, lines in itertools.groupby(batch, key=lambda entry: entry[0]):
                data = b"".join(line for _, line in lines)
                if descriptor not in self.errors:
                    try:
                        write_all(descriptor, data)
                    except OSError as error:
                        self.errors[descriptor] = error
                with self.changed:
                    self.queued -= len(data)
                self.wake()


class Stream:
    """The stdout or the stderr of a worker."""

    # A carriage return at the very end may be half of a line's end.
    LINE = re.compile(rb"([^\r\n]*)(\r?\n|\r(?!\n|\Z))")

    def __init__(self, pipe, file, printed_to):
        self.pipe = pipe
        self.file = file  # the descriptor of its own file; None without one
        self.printed_to = printed_to  # STDOUT or STDERR; None where it is not printed
        self.rest = b""  # a line whose end is still to come

    def lines(self, data):
        """The whole lines up to the end of `data`, each with its end: a newline or a carriage return."""
        text, start = self.rest + data, 0
        while True:
            match = self.LINE.match(text, start)
            if not match:
                break
            start = match.end()
            line, end = match.groups()
            if line or end != b"\r":  # Progress lines may begin with their carriage return.
                yield line, end[-1:]
        self.rest = text[start:]
        if len(self.rest) > LONGEST_LINE:
            yield self.last_line(), b"\n"

    def last_line(self):
        line, self.rest = self.rest.rstrip(b"\r"), b""
        return line
