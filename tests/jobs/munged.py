"""A munged of a test's own, with a key and a socket of its own."""

import pathlib
import secrets
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("munged") or shutil.which("munged", path="/usr/sbin:/sbin")


def why_none():
    """Why no munged can be started; None if one can."""
    return None if PROGRAM else "needs munged (Debian: munge)"


class Munged:
    """Runs until end(). Processes of all users reach it at `socket`."""

    def __init__(self, key=None):
        self._folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self._folder.name)
        folder.chmod(0o755)
        self.socket = folder / "socket"
        self.key = key or secrets.token_bytes(32)
        key_file = folder / "key"
        key_file.touch(0o600)
        key_file.write_bytes(self.key)
        files = [f"--{name}-file={folder / name}" for name in ("key", "pid", "seed", "log")]
        self._process = subprocess.Popen([PROGRAM, "--foreground", f"--socket={self.socket}", *files],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while not self.socket.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise AssertionError(f"munged made no socket: {self._process.stderr.read()}")
            time.sleep(0.01)

    def end(self):
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(30)
        self._process.stderr.close()
        self._folder.cleanup()
