"""An S3 server on loopback, behind a proxy that breaks chosen requests.

As a program, `object_store.py bucket folder` serves the files below a folder, prints the endpoint, and ends when its standard input
does.
"""

import contextlib
import dataclasses
import http.client
import http.server
import logging
import pathlib
import sys
import threading
import urllib.parse

import moto.server

# As S3 does for requests that it cannot take now.
BUSY = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
# moto does not check signatures unless a test makes it, but objects of others are not for everyone.
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"}
KEEP = {"content-type", "content-range", "etag", "last-modified", "accept-ranges"}


@dataclasses.dataclass
class Request:
    """A request that arrived at the proxy. `number` counts those of the same method and range for the same path, from 1."""

    method: str
    path: str
    number: int


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        pass

    def answer(self):
        store = self.server.store
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = store.arrived(self.command, self.path, self.headers.get("Range", ""))
        if fault == "silent":
            store.closing.wait()
        if fault in ("silent", "closed"):
            self.close_connection = True
        elif fault == "busy":
            self.respond(503, {"Content-Type": "application/xml"}, BUSY)
        else:
            self.respond(*store.forward(self.command, self.path, dict(self.headers), content))

    def respond(self, status, headers, content):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name in headers):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer


class ProxyServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client was killed
            super().handle_error(request, client_address)


class ObjectStore(contextlib.AbstractContextManager):
    """Holds one bucket. `on_request` is called for each request; it may wait, or return "busy", "silent" or "closed"."""

    def __init__(self, bucket):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.bucket = bucket
        self.on_request = lambda request: None
        self.requests = []
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.numbers = {}
        self.server = moto.server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self.server.start()
        self.address = self.server.get_host_and_port()
        self.proxy = ProxyServer(("127.0.0.1", 0), Proxy)
        self.proxy.store = self
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self.send("POST", "/moto-api/reset")  # the state is the process's
        self.send("PUT", f"/{bucket}")

    def __exit__(self, *error):
        self.closing.set()
        self.proxy.shutdown()
        self.proxy.server_close()
        self.server.stop()

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.proxy.server_address[1]}"

    def uri(self, key="", credentials="", bucket=""):
        query = f"endpoint_override={self.endpoint}&scheme=http&region=us-east-1"
        return f"s3://{credentials}{bucket or self.bucket}/{urllib.parse.quote(key, safe='/*[]')}?{query}"

    def arrived(self, method, path, range_of_bytes):
        with self.lock:
            number = self.numbers[method, path, range_of_bytes] = self.numbers.get((method, path, range_of_bytes), 0) + 1
            request = Request(method, path, number)
            self.requests.append(request)
        return self.on_request(request)

    def forward(self, method, path, headers, content):
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            names = KEEP | ({"content-length"} if method == "HEAD" else set())
            return response.status, {name: value for name, value in response.getheaders() if name.lower() in names}, response.read()
        finally:
            connection.close()

    def send(self, method, path, content=b""):
        status, _, answer = self.forward(method, path, SIGNED, content)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer}")

    def put(self, key, content):
        self.send("PUT", f"/{self.bucket}/{urllib.parse.quote(key)}", content)

    def delete(self, key):
        self.send("DELETE", f"/{self.bucket}/{urllib.parse.quote(key)}")


def main():
    bucket, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    with ObjectStore(bucket) as store:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                store.put(str(file.relative_to(folder)), file.read_bytes())
        print(store.endpoint, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
