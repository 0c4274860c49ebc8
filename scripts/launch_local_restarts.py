"""Whether launch_local.sh starts a job again after a failure, and with how many workers."""

import signal

# What Lockstep's programs return for wrong usage, data, checkpoints and numbers that cannot be computed with: another
# start would find the same.
LASTING = frozenset({2, 3, 4, 6})
# Interrupted and terminated: who asks a worker to end does not want it back.
ASKED_TO_END = frozenset({130, 143})
# Signals that others send; a program that crashes gets SIGSEGV, SIGABRT and the like.
FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM})


def forbids_another_start(worker, retryable):
    """`retryable` holds the program's --retryable-exit-code, which asks for another start even if it is 130 or 143."""
    if worker.code in retryable:
        return False
    if worker.code in ASKED_TO_END:
        return not worker.sent
    return worker.code in LASTING


def goes_on_without(worker):
    """Whether a job of parameter servers can do without it: workers may come and go."""
    return worker.job == "worker"


def has_lost_its_place(worker):
    """Whether somebody else killed it, such as the kernel for want of memory: there is no room for so many."""
    return -worker.code in FROM_OUTSIDE and -worker.code not in worker.sent


def workers_of_next_start(workers, fewest):
    """As many as have just ended; where `fewest` is set, that many at least, less those that lost their place."""
    if not fewest:
        return len(workers)
    return max(fewest, len(workers) - sum(map(has_lost_its_place, workers)))
