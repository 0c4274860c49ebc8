"""TensorBoard itself, serving a folder to a test."""

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

try:
    import tensorboard  # noqa: F401
except ImportError as error:
    MISSING = f"PyPI's tensorboard cannot be imported: {error}"
else:
    MISSING = ""

SECONDS_TO_LOAD = 60


class TensorBoard:
    """A server over a folder, on a port that the system chose."""

    def __init__(self, folder, arguments=()):
        # A file takes any amount of words without making their writer wait.
        self.words = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-B", "-m", "tensorboard.main", "--logdir", str(folder), "--host", "127.0.0.1", "--port", "0",
             *arguments],
            stdout=subprocess.DEVNULL, stderr=self.words)
        try:
            self.url = self.wait_for_address()
        except BaseException:
            self.close()
            raise

    def wait_for_address(self):
        end = time.monotonic() + SECONDS_TO_LOAD
        while True:
            self.words.seek(0)
            words = self.words.read()
            found = re.search(r"at (http://127\.0\.0\.1:\d+)/", words)
            if found:
                return found.group(1)
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"tensorboard named no address:\n{words}")
            time.sleep(0.1)

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.words.close()

    def get(self, path, **query):
        url = f"{self.url}/data/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.read()

    def json(self, path, **query):
        return json.loads(self.get(path, **query))

    def post(self, path, body):
        request = urllib.request.Request(f"{self.url}/data/{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())
