"""A network of its own for the processes of a job, and recordings of all packets in it."""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import os
import select
import socket
import struct
import threading

CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
ETH_P_ALL = 0x0003
SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 263, 6, 23
TCP_SYN = 0x02
BUFFER_BYTES = 256 << 20  # for packets that wait to be read
MOST_BYTES = 1 << 20  # of a packet: more than the loopback device ever joins into one
QUIET = 0.3  # seconds without a packet after which a recording ends


class NotPermitted(Exception):
    """This machine makes no such network."""


@dataclasses.dataclass
class Stream:
    """What a TCP connection has carried in one direction, in order."""
    source: int  # port
    destination: int  # port
    data: bytes


@dataclasses.dataclass
class Datagram:
    source: int  # port
    destination: int  # port
    data: bytes


class RecordedNetwork:
    """A network namespace that has a loopback device only, and a host name of its own. The namespaces are those of one
    thread and of the processes that it starts, and end with them."""

    def __init__(self, host_name):
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        try:
            self.run(lambda: _enter_new_namespaces(host_name))
            self.run(_packet_socket).close()
        except OSError as error:
            self.close()
            raise NotPermitted(f"a network to record cannot be made here: {error}") from error

    def run(self, function):
        """Returns the result of `function`, whose sockets and processes belong to the network."""
        return self._thread.submit(function).result()

    @contextlib.contextmanager
    def recording(self):
        """Records until the block ends."""
        recording = Recording(self.run(_packet_socket))
        try:
            yield recording
        finally:
            recording.end()

    def close(self):
        self._thread.shutdown()


def _enter_new_namespaces(host_name):
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    socket.sethostname(host_name)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags, = struct.unpack_from("H", request, 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))


def _packet_socket():
    made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)  # each packet once: as it arrives
    return made


class Recording:
    """The packets of a network. Read it once its block has ended."""

    def __init__(self, packet_socket):
        self.packets = []  # from the header of IP on
        self.lost = 0  # packets that the system has dropped, or cut off
        self._socket = packet_socket
        self._ending = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        buffer = bytearray(MOST_BYTES)
        while True:
            if not select.select([self._socket], [], [], QUIET)[0]:
                if self._ending.is_set():
                    return
                continue
            count, _, flags, _ = self._socket.recvmsg_into([buffer])
            self.packets.append(bytes(memoryview(buffer)[:count]))
            self.lost += bool(flags & socket.MSG_TRUNC)

    def end(self):
        self._ending.set()
        self._reader.join()
        _, dropped = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self.lost += dropped
        self._socket.close()

    def num_bytes(self):
        return sum(len(packet) for packet in self.packets)

    @functools.cached_property
    def streams(self):
        """All TCP streams that carried anything. Raises ValueError if a byte of one is missing."""
        connections = {}  # of a direction: its latest stream's first number, and its segments
        ended = []
        for packet in self.packets:
            if _protocol(packet) != socket.IPPROTO_TCP:
                continue
            header = 4 * (packet[0] & 15)
            source, destination, number = struct.unpack_from("!HHI", packet, header)
            first_byte = header + 4 * (packet[header + 12] >> 4)
            key = (packet[12:20], source, destination)
            if packet[header + 13] & TCP_SYN:
                begin = (number + 1) % 2**32
                if key in connections and connections[key][0] != begin:
                    ended.append((key, connections.pop(key)[1]))
                connections.setdefault(key, (begin, []))
            elif len(packet) > first_byte:
                if key not in connections:
                    raise ValueError(f"the stream from port {source} to port {destination} began before the recording")
                begin, segments = connections[key]
                segments.append(((number - begin) % 2**32, packet[first_byte:]))
        found = ended + [(key, segments) for key, (_, segments) in connections.items()]
        return [Stream(source, destination, _joined(segments)) for (_, source, destination), segments in found if segments]

    @functools.cached_property
    def datagrams(self):
        """All UDP datagrams."""
        found = []
        for packet in self.packets:
            if _protocol(packet) == socket.IPPROTO_UDP:
                header = 4 * (packet[0] & 15)
                source, destination = struct.unpack_from("!HH", packet, header)
                found.append(Datagram(source, destination, packet[header + 8:]))
        return found

    @functools.cached_property
    def texts(self):
        """All bytes that can be read: those of TCP streams, and whole packets of other kinds."""
        return [stream.data for stream in self.streams] + [packet for packet in self.packets
                                                             if _protocol(packet) != socket.IPPROTO_TCP]


def _protocol(packet):
    """The protocol inside a packet of IPv4; None for other packets."""
    return packet[9] if len(packet) >= 20 and packet[0] >> 4 == 4 else None


def _joined(segments):
    """The bytes of segments (offset, bytes), some of which may have been sent again."""
    data = bytearray()
    for offset, payload in sorted(segments):
        if offset > len(data):
            raise ValueError(f"bytes {len(data)} to {offset} of a stream are not in the recording")
        data[offset:offset + len(payload)] = payload
    return bytes(data)
