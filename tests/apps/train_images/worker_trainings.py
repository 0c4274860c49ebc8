"""Runs a train_images for each worker of a job that steps together on this machine."""

import os
import secrets
import socket
import subprocess

PROGRAM = os.environ["TRAIN_IMAGES"]
TRAINING = ["--data", "generated", "--limit-train", "320", "--limit-test", "100", "--epochs", "2", "--threads", "1",
            "--strategy", "multi_worker"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def train(*arguments_of_workers, prefixes=((), ()), training=None):
    """Each worker's exit code, and what it has printed."""
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in arguments_of_workers)
    environment = os.environ | {"LOCKSTEP_JOB_TOKEN": secrets.token_hex(32)}
    workers = [
        subprocess.Popen([*prefixes[rank], PROGRAM, *(training or TRAINING), "--worker-hosts", hosts, "--task-index", str(rank), *arguments],
                         env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank, arguments in enumerate(arguments_of_workers)]
    try:
        outputs = [worker.communicate(timeout=200)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(worker.returncode, output) for worker, output in zip(workers, outputs)]
