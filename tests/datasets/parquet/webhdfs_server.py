"""A WebHDFS server on loopback with a namenode and a datanode, which breaks chosen requests.

Answers are as Hadoop's documentation of its "WebHDFS REST API" has them.
"""

import contextlib
import dataclasses
import http.server
import json
import pathlib
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

PREFIX = "/webhdfs/v1"


@dataclasses.dataclass
class Request:
    """A request that arrived. `number` counts those of the same role, operation, path and offset, from 1."""

    role: str  # "namenode" or "datanode"
    operation: str
    path: str
    offset: int
    length: int
    user: str
    token: str
    connection: tuple
    number: int = 0


@dataclasses.dataclass
class File:
    content: bytes
    id: int
    modified_ms: int


class Remote(Exception):
    """An exception of Hadoop's. A hook may raise it, too."""

    def __init__(self, status, name, message):
        super().__init__(message)
        self.status = status
        self.content = json.dumps({"RemoteException": {"exception": name, "javaClassName": f"org.apache.hadoop.{name}", "message": message}})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        store = self.server.store
        path = urllib.parse.unquote(url.path).removeprefix(PREFIX)
        request = Request(self.server.role, query.get("op", "").upper(), "/" + path.strip("/"), int(query.get("offset", 0)),
                          int(query.get("length", -1)), query.get("user.name", ""), query.get("delegation", ""), self.client_address)
        try:
            self.respond_to(store, url, request, store.arrived(request))
        except Remote as error:
            self.respond(error.status, error.content.encode(), {"Content-Type": "application/json"})

    def respond_to(self, store, url, request, fault):
        if fault == "silent":
            store.closing.wait()
        if fault in ("silent", "closed"):
            self.close_connection = True
        elif fault == "busy":
            self.respond(503, b"busy")
        elif fault == "page":
            self.respond(200, b"<html>Welcome</html>")
        elif not url.path.startswith(PREFIX):
            self.respond(404, b"<html>Not Found</html>")
        elif self.server.role == "datanode":
            self.send_content(store, request, fault)
        elif request.operation == "OPEN":
            store.file(request.path)
            # Without content, as the real namenode sends it.
            self.respond(307, b"", {"Location": f"{store.scheme}://{store.address('datanode')}{self.path}&namenoderpcaddress=localhost:8020"})
        elif request.operation in ("GETFILESTATUS", "LISTSTATUS"):
            self.respond(200, json.dumps(store.status(request)).encode(), {"Content-Type": "application/json"})
        else:
            raise Remote(400, "IllegalArgumentException", f"Invalid value for webhdfs parameter \"op\": {request.operation}")

    def send_content(self, store, request, fault):
        content = store.file(request.path).content
        if request.offset > len(content):
            raise Remote(403, "IOException", f"Offset={request.offset} out of the range [0, {len(content)}]; OPEN, path={request.path}")
        end = len(content) if request.length < 0 else request.offset + request.length
        content = content[request.offset:end]
        if fault == "less":
            content = content[:len(content) // 2]
        elif fault == "more":
            content += b"more"
        if fault == "cut":
            self.respond(200, content[:len(content) // 2], {"Content-Length": str(len(content))})
            self.close_connection = True
        else:
            self.respond(200, content)

    def respond(self, status, content, headers=None):
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, store, role, certificate):
        super().__init__(("127.0.0.1", 0), Handler)
        self.store, self.role = store, role
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):  # a client gave up
            super().handle_error(request, client_address)


def make_certificate(folder):
    """Returns a file with a key and a certificate of 127.0.0.1 that the key itself signed."""
    file = pathlib.Path(folder) / "server.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", file, "-out", f"{file}.crt"], check=True, capture_output=True)
    file.write_text(file.read_text() + pathlib.Path(f"{file}.crt").read_text())
    return file


class WebHdfs(contextlib.AbstractContextManager):
    """Holds files. `on_request` is called for each request; it may wait, raise Remote, or return a fault: "busy", "silent", "closed",
    "page", and "less", "more" or "cut" of a datanode's answer."""

    def __init__(self, certificate=None):
        self.scheme = "https" if certificate else "http"
        self.on_request = lambda request: None
        self.requests = []
        self.numbers = {}
        self.files = {}
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.servers = {role: Server(self, role, certificate) for role in ("namenode", "datanode")}
        for server in self.servers.values():
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def __exit__(self, *error):
        self.closing.set()
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def address(self, role):
        return f"127.0.0.1:{self.servers[role].server_address[1]}"

    def uri(self, path="", user="", query=""):
        scheme = "swebhdfs" if self.scheme == "https" else "webhdfs"
        return f"{scheme}://{user and user + '@'}{self.address('namenode')}/{urllib.parse.quote(path, safe='/*[]')}{query and '?' + query}"

    def name(self, path):
        """Returns the name of a path in messages."""
        return f"{'swebhdfs' if self.scheme == 'https' else 'webhdfs'}://{self.address('namenode')}/{path}"

    def put(self, path, content):
        with self.lock:
            self.files["/" + path] = File(content, 16386 + len(self.files), time.time_ns() // 1000000)

    def delete(self, path):
        with self.lock:
            del self.files["/" + path]

    def arrived(self, request):
        with self.lock:
            key = (request.role, request.operation, request.path, request.offset)
            request.number = self.numbers[key] = self.numbers.get(key, 0) + 1
            self.requests.append(request)
        return self.on_request(request)

    def file(self, path):
        with self.lock:
            if path not in self.files:
                raise Remote(404, "FileNotFoundException", f"File does not exist: {path}")
            return self.files[path]

    def status(self, request):
        with self.lock:
            files = dict(self.files)
        common = {"accessTime": 1320171722771, "blockSize": 33554432, "group": "supergroup", "owner": "clicks", "permission": "644",
                  "replication": 1, "storagePolicy": 0}

        def of_file(suffix, file):
            return common | {"pathSuffix": suffix, "type": "FILE", "length": len(file.content), "fileId": file.id,
                             "modificationTime": file.modified_ms, "childrenNum": 0}

        def of_folder(suffix):
            return common | {"pathSuffix": suffix, "type": "DIRECTORY", "length": 0, "fileId": 16385, "replication": 0, "blockSize": 0,
                             "modificationTime": 1320895981256, "childrenNum": 1}

        folder = request.path.rstrip("/") + "/"
        below = [path.removeprefix(folder) for path in files if path.startswith(folder)]
        if request.path not in files and not below:
            raise Remote(404, "FileNotFoundException", f"File does not exist: {request.path}")
        if request.operation == "GETFILESTATUS":
            return {"FileStatus": of_file("", files[request.path]) if request.path in files else of_folder("")}
        if request.path in files:
            entries = [of_file("", files[request.path])]
        else:
            entries = [of_file(name, files[folder + name]) for name in below if "/" not in name]
            entries += [of_folder(name) for name in sorted({name.split("/")[0] for name in below if "/" in name})]
        return {"FileStatuses": {"FileStatus": entries}}
