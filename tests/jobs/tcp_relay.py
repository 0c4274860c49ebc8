"""An attacker between a client and a server: hands their bytes on, records them, and changes what a test asks for."""

import contextlib
import selectors
import socket
import threading

TO_SERVER, TO_CLIENT = 0, 1


class TcpRelay:
    """Listens on a loopback port. `target` is where it hands connections to, and may change at any time.
    Without a target, it closes them."""

    def __init__(self, target):
        self.target = target
        self.recorded = []  # for each connection, the bytes in both directions
        self.flipped_byte = None  # (direction, its number): the lowest bit of that byte changes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def place(self):
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def _run(self):
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            selector.register(stack.enter_context(self._listener), selectors.EVENT_READ)
            while not self._stopping.is_set():
                for key, _ in selector.select(0.05):
                    if key.data is None:
                        self._accept(selector, stack)
                    elif not self._forward(key.fileobj, *key.data):
                        for end in (key.fileobj, key.data[0]):
                            selector.unregister(end)
                            end.close()
                        break  # the other end may be among the events

    def _accept(self, selector, stack):
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self.target, 10) if self.target else None
        except OSError:
            server = None
        if not server:
            client.close()
            return
        for end in (client, server):
            stack.enter_context(end)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.recorded.append((bytearray(), bytearray()))
        selector.register(client, selectors.EVENT_READ, (server, TO_SERVER, self.recorded[-1]))
        selector.register(server, selectors.EVENT_READ, (client, TO_CLIENT, self.recorded[-1]))

    def _forward(self, source, sink, direction, recorded):
        """Returns whether the connection is still open."""
        try:
            piece = bytearray(source.recv(65536))
            begin = len(recorded[direction])
            recorded[direction].extend(piece)
            if self.flipped_byte and self.flipped_byte[0] == direction:
                number = self.flipped_byte[1] - begin
                if 0 <= number < len(piece):
                    piece[number] ^= 1
            sink.sendall(piece)
        except OSError:
            return False
        return bool(piece)

    def close(self):
        self._stopping.set()
        self._thread.join()
