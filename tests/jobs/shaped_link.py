"""Two hosts, each a network namespace, and a link between them that delays and loses packets as a test asks for."""

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time

TUNSETIFF = 0x400454ca
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
MOST_BYTES = 65536


class NotPermitted(Exception):
    """This machine makes no such hosts."""


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def enter(namespace):
    """The calling thread's sockets and devices are the namespace's from now on."""
    with open(namespace, "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


class Direction:
    """The treatment of packets in one direction."""

    def __init__(self):
        self.delay = 0.0  # seconds
        self.loss = 0.0  # of 1


def link_for(test):
    """A ShapedLink that is closed after the test; skips the test if none can be made here."""
    if not shutil.which("ip"):
        test.skipTest("ip is not installed (Debian: iproute2)")
    try:
        link = ShapedLink()
    except NotPermitted as error:
        test.skipTest(str(error))
    test.addCleanup(link.close)
    return link


class ShapedLink:
    """Hosts 10.78.0.1 and 10.78.0.2; close() removes them."""

    def __init__(self):
        self.names = [f"lockstep-link-{os.getpid()}-{index}" for index in range(2)]
        self.directions = [Direction(), Direction()]  # from the first host, from the second one
        self.devices = []
        self.chance = random.Random(1)
        self.change = lambda sender, packet: [packet]  # what arrives instead of a packet of host 0 or 1
        self.stopping = threading.Event()
        self.relay = None
        try:
            try:
                for index, name in enumerate(self.names):
                    ip("netns", "add", name)
                    self.devices.append(self.open_device(name))
                    ip("-n", name, "addr", "add", f"10.78.0.{index + 1}/24", "dev", "tun0")
                    ip("-n", name, "link", "set", "lo", "up")
                    ip("-n", name, "link", "set", "tun0", "up")
            except (OSError, subprocess.CalledProcessError) as error:
                reason = getattr(error, "stderr", None) or error
                raise NotPermitted(f"hosts with a shaped link cannot be made here: {reason}") from error
        except BaseException:
            self.close()
            raise
        self.relay = threading.Thread(target=self.run, daemon=True)
        self.relay.start()

    @staticmethod
    def open_device(name):
        made = []

        def open_there():
            enter(f"/run/netns/{name}")
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
            made.append(device)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN | IFF_NO_PI))
            made.append(True)

        failures = []

        def attempt():
            try:
                open_there()
            except OSError as error:
                failures.append(error)

        # A thread of its own: its namespace is that of no other thread.
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
        if failures:
            if made:
                os.close(made[0])
            raise failures[0]
        return made[0]

    def run(self):
        on_their_way = []  # (when they arrive, a number that tells equal times apart, device, packet)
        number = 0
        while not self.stopping.is_set():
            now = time.monotonic()
            while on_their_way and on_their_way[0][0] <= now:
                _, _, device, packet = heapq.heappop(on_their_way)
                try:
                    os.write(device, packet)
                except OSError:
                    pass  # its host takes none
            wait = min(on_their_way[0][0] - now, 0.05) if on_their_way else 0.05
            for device in select.select(self.devices, [], [], max(wait, 0))[0]:
                packet = os.read(device, MOST_BYTES)
                sender = self.devices.index(device)
                direction = self.directions[sender]
                if self.chance.random() < direction.loss:
                    continue
                for changed in self.change(sender, packet):
                    number += 1
                    heapq.heappush(on_their_way, (time.monotonic() + direction.delay, number, self.devices[1 - sender], changed))

    def send(self, sender, packet):
        """Sends a packet as if it came from host 0 or 1."""
        os.write(self.devices[1 - sender], packet)

    def shape(self, delay=0.0, loss=0.0, senders=(0, 1)):
        for sender in senders:
            self.directions[sender].delay = delay
            self.directions[sender].loss = loss

    def close(self):
        self.stopping.set()
        if self.relay:
            self.relay.join()
        for device in self.devices:
            os.close(device)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
