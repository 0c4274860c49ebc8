"""An attacker's program: it knows the addresses of a job's sockets, but not its token, and belongs to another user.

attacker.py ATTACK reads the addresses as a line of JSON and writes what it has seen as another one. It ends once its
standard input does. If it was started by root, it becomes another user first.
"""

import contextlib
import itertools
import json
import os
import resource
import selectors
import socket
import ssl
import struct
import sys
import threading
import time

OTHER_USER = 65534
ANSWER_TIME = 3  # seconds in which a server has answered
CONNECT_TIME = 0.5  # seconds until a server whose queue is full is left alone
FLOOD = 10_000
FLOOD_TIME = 60  # seconds until a place that takes connections too slowly is left alone
DATAGRAMS = 200_000
HELD = 2_000


def text(value):
    """A text as Lockstep writes it."""
    return struct.pack("<I", len(value)) + value


def channel_identity(purpose, client, server, generation=0):
    """The name of a connection's key, as a process of the job sends it."""
    return b"".join(map(text, (b"lockstep channel 1", purpose, client, server))) + struct.pack("<QQ", 0, generation)


def sized(format_of_size, *parts):
    content = b"".join(parts)
    return struct.pack(format_of_size, len(content)) + content


def client_hello(identity):
    """A TLS 1.3 ClientHello (RFC 8446) with a pre-shared key of that name, and a proof that is random bytes."""
    def extension(number, content):
        return struct.pack(">H", number) + sized(">H", content)

    extensions = b"".join((
        extension(43, b"\x02\x03\x04"),  # TLS 1.3
        extension(10, b"\x00\x02\x00\x1d"),  # X25519
        extension(51, sized(">H", b"\x00\x1d", sized(">H", os.urandom(32)))),
        extension(45, b"\x01\x01"),  # a key with an ephemeral exchange
        extension(13, b"\x00\x04\x04\x03\x08\x04"),
        extension(41, sized(">H", sized(">H", identity), b"\0\0\0\0") + sized(">H", sized(">B", os.urandom(32))))))
    body = b"\x03\x03" + os.urandom(32) + sized(">B", os.urandom(32)) + b"\x00\x02\x13\x01\x01\x00" + sized(">H", extensions)
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + sized(">H", message)


def hello_of_another_program():
    """The ClientHello of a program with certificates."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    client = context.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def set_request(key, value):
    """A request that sets a key of the job's store: all workers end if they find a report of a failure."""
    body = struct.pack("<QBq", 1, 0, 0)
    for texts in ((key,), (value,), ()):
        body += struct.pack("<I", len(texts)) + b"".join(map(text, texts))
    return sized("<I", body)


def payloads():
    """What a stranger says first, by name."""
    own_identity = channel_identity(b"store", b"worker 1", b"store")
    return {
        "nothing": b"",
        "random bytes": os.urandom(4096),
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "a length of 2^31": struct.pack("<I", 2**31) + bytes(60),
        "a length of 2^62": struct.pack("<Q", 2**62) + bytes(56),
        "a longest TLS record": b"\x16\x03\x01\xff\xff" + bytes(70_000),
        "another program's ClientHello": hello_of_another_program(),
        "half a ClientHello": hello_of_another_program()[:100],
        "a foreign key": client_hello(b"Client_identity"),
        "the store's key": client_hello(own_identity),
        "the store's key of another start": client_hello(channel_identity(b"store", b"worker 1", b"store", 1)),
        "the key of those who ask for the secret": client_hello(channel_identity(b"secret", b"worker 1", b"secret")),
        "a link's key": client_hello(channel_identity(b"exchange", b"rank 1", b"rank 0")),
        "a parameter server's key": client_hello(channel_identity(b"rpc", b"worker 0", b"ps 0")),
        "half a proof": client_hello(own_identity)[:-16],
        "a link's hello": struct.pack("<IHIIIQB", 0x4C58534C, 1, 1, 0, 0, 0, 0) + os.urandom(64),
        "a report of a failure": set_request(b"failures/read", b"a worker: failed\n"),
    }


def forged_heartbeats():
    """Heartbeats of several ranks that no key has sealed."""
    return [struct.pack("<IHiQ", 0x4248534C, version, rank, 2**63) + os.urandom(26)
            for version in range(4) for rank in (-1, 0, 1, 2**31 - 1)]


def send_datagrams(place, datagrams):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, tuple(place[1:]))


def connect(place):
    """A connection that does not block, or None if nobody takes it in time."""
    kind, *address = place
    stream = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    stream.settimeout(CONNECT_TIME)
    try:
        stream.connect("\0" + address[0] if kind == "unix" else tuple(address))
    except OSError:
        stream.close()
        return None
    stream.setblocking(False)
    return stream


def probe(places):
    """Says each payload to each place, sends each datagram, and returns all answers."""
    answers = []
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        for place in places:
            if place[0] == "udp":
                garbage = [os.urandom(size) for size in (0, 1, 17, 18, 43, 44, 45, 1400, 60_000)]
                send_datagrams(place, garbage + forged_heartbeats())
                continue
            for name, payload in payloads().items():
                answer = {"place": place, "payload": name, "bytes": ""}
                answers.append(answer)
                stream = connect(place)
                if not stream:
                    answer["payload"] += " (nobody took the connection)"
                    continue
                opened.enter_context(stream)
                with contextlib.suppress(OSError):  # refused meanwhile
                    stream.send(payload)
                selector.register(stream, selectors.EVENT_READ, answer)
        deadline = time.monotonic() + ANSWER_TIME
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(max(deadline - time.monotonic(), 0)):
                try:
                    received = key.fileobj.recv(65536)
                except OSError:
                    received = b""
                key.data["bytes"] += received.hex()
                if not received:
                    selector.unregister(key.fileobj)
        yield answers
        yield None  # some stay open, and say no more


def flood(places):
    """Opens and closes FLOOD connections to each place, and says a little in every second one. Sends DATAGRAMS forged
    heartbeats to places of UDP."""
    taken = []
    for place in places:
        if place[0] == "udp":
            send_datagrams(place, itertools.islice(itertools.cycle(forged_heartbeats()), DATAGRAMS))
            continue
        count = 0
        deadline = time.monotonic() + FLOOD_TIME
        while count < FLOOD and time.monotonic() < deadline:
            stream = connect(place)
            if not stream:  # the queue is full: a busy machine takes connections more slowly than they are opened
                time.sleep(0.001)
                continue
            count += 1
            with stream, contextlib.suppress(OSError):
                if place[0] == "tcp":  # without the system's waiting time after it
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if count % 2:
                    stream.send(b"\x16\x03\x01\x02\x00\x01")
        taken.append({"place": place, "taken": count})
    yield taken


def hold(places):
    """Holds HELD connections, and opens another one for each that is closed."""
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        stack.callback(lambda: [key.fileobj.close() for key in list(selector.get_map().values())])

        def open_one(place):
            stream = connect(place)
            if stream:
                selector.register(stream, selectors.EVENT_READ, place)

        for number in range(HELD):
            open_one(places[number % len(places)])
        yield [{"held": len(selector.get_map())}]
        while True:
            closed = [key for key, _ in selector.select(0.1)]
            for key in closed:
                selector.unregister(key.fileobj)
                key.fileobj.close()
            for key in closed:
                open_one(key.data)
            yield None


def steal(places):
    """Listens at the places, answers garbage, and returns what it has heard at the end."""
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for place in places:
            listener = stack.enter_context(socket.socket())
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                listener.setsockopt(socket.SOL_SOCKET, option, 1)
            listener.bind(tuple(place[1:]))
            listener.listen()
            selector.register(listener, selectors.EVENT_READ, None)
        heard = []
        yield heard
        while True:
            for key, _ in selector.select(0.1):
                if key.data is None:
                    victim, _ = key.fileobj.accept()
                    stack.enter_context(victim)
                    heard.append({"bytes": ""})
                    selector.register(victim, selectors.EVENT_READ, heard[-1])
                    continue
                try:
                    received = key.fileobj.recv(65536)
                    key.fileobj.send(os.urandom(512))
                except OSError:
                    received = b""
                key.data["bytes"] += received.hex()
                if not received:
                    selector.unregister(key.fileobj)
            yield None


def main():
    if os.geteuid() == 0 and sys.argv[2:] != ["--same-user"]:
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    places = json.loads(sys.stdin.readline())
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    seen = None
    for report in {"probe": probe, "flood": flood, "hold": hold, "steal": steal}[sys.argv[1]](places):
        if report is not None:
            seen = report
            print(json.dumps(seen), flush=True)
        elif is_over.wait(0.01):
            break
    is_over.wait()
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
