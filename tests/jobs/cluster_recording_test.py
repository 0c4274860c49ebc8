#!/usr/bin/env python3
"""Someone who records all packets of a job reads no parameter, no gradient, no token and no text in which processes describe
themselves.

The tests know the values that cross the network bit for bit:
- Parameters: worker 0 sends the initial ones. Checkpoints hold the same values, since rounding drops updates with the learning
  rate 1e-30. Each job is also resumed once. Then worker 0 sends the whole checkpoint.
- Gradients: SGD's buffer is momentum * buffer + gradient. The momentum 1e-300 is 0 in float32, so that checkpoints hold the
  gradients of their step. These are sums over all workers, which the exchange algorithm `halving` sends. The part of one worker
  is in no file, so the tests do not look for it.
- Parameter servers: a first step with learning rate 1 sets the table of weights, which was 0, to minus its gradient. Other
  gradients are in no file.

A control shows that the same search finds these values if workers do not encrypt their exchanges. Parameter servers always
encrypt, so nothing shows that their messages hold values in the order of the files. For them, there is a general control, which
finds bytes that cross a recorded network in the clear, and all streams must consist of TLS records.
"""

import base64
import json
import pathlib
import re
import secrets
import socket
import struct
import tempfile
import unittest

import recorded_network
import saved_state
import workers

TRAINING = [str(workers.BIN / "train_images"), "--strategy", "multi_worker", "--data", "generated", "--limit-train", "128",
            "--limit-test", "64", "--image-size", "12", "--threads", "1", "--optimizer", "sgd", "--momentum", "1e-300",
            "--learning-rate", "1e-30", "--learning-rate-schedule", "constant", "--exchange-algorithm", "halving",
            "--save-every", "1 steps"]
SERVED = [str(workers.BIN / "train_ctr"), "--strategy", "parameter_server", "--threads", "1", "--train-rows", "20000",
          "--test-rows", "512", "--global-batch-size", "256", "--table-rows", "500", "--optimizer", "sgd",
          "--learning-rate", "1", "--save-every", "1 steps"]
HOST = "a-host-that-is-recorded"
# Parts of messages between workers. Without encryption, they can be read in exchanges.
TEXTS_OF_EXCHANGES = ["heartbeat_port", "exchange_port", "num_replicas", "dense.weight"]
# Names and values in the store, and those of earlier versions.
TEXTS_OF_STORE = [HOST, "worker/0", "failures", "world size", "Lockstep version", "exchange algorithm",
                  "gradient compression", "127.0.0.1"]
BLOCK = 16  # bytes
HEARTBEAT = 44  # bytes
# Types of TLS records (RFC 8446, 5.1): a hello, twice if the server asks for it, each with a change_cipher_spec or not;
# then application_data.
TLS_RECORDS = re.compile(rb"(\x16\x14?){1,2}\x17*")


def blocks(values, stride=4):
    """All blocks of `values`, except those of four equal floats."""
    found = {values[begin:begin + BLOCK] for begin in range(0, len(values) - BLOCK + 1, stride)}
    return {block for block in found if block != block[:4] * 4}


def blocks_of(tensors):
    return set().union(*map(blocks, tensors))


def blocks_of_secret(digits):
    """The blocks of a secret that is given as hexadecimal digits: of this text, of its bytes, and of the base64 of both."""
    raw = bytes.fromhex(digits)
    forms = [digits.encode(), digits.upper().encode(), raw, base64.b64encode(raw), base64.b64encode(digits.encode())]
    return set().union(*(blocks(form, stride=1) for form in forms))


def negated(values):
    return b"".join(struct.pack("<f", -value) for value, in struct.iter_unpack("<f", values))


def found_in(recording, wanted):
    """The blocks of `wanted` that are in the recording, at any byte."""
    wanted = {(block,) for block in wanted}  # as iter_unpack gives them
    found = set()
    for text in recording.texts:
        for begin in range(min(BLOCK, len(text))):
            end = len(text) - (len(text) - begin) % BLOCK
            found |= wanted.intersection(struct.iter_unpack(f"{BLOCK}s", text[begin:end]))
    return {block for block, in found}


def is_encrypted(stream):
    """Whether the stream consists of TLS records: a handshake, and then application data only. The last record may be cut off."""
    begin, types = 0, []
    while len(stream.data) - begin >= 5:
        kind, version, size = struct.unpack_from("!BHH", stream.data, begin)
        if version not in (0x0301, 0x0303):
            return False
        types.append(kind)
        begin += 5 + size
    return bool(TLS_RECORDS.fullmatch(bytes(types)))


class RecordingCase(unittest.TestCase):
    def setUp(self):
        try:
            self.network = recorded_network.RecordedNetwork(HOST)
        except recorded_network.NotPermitted as error:
            self.skipTest(str(error))
        self.addCleanup(self.network.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.backup = self.folder / "backup"
        self.token = secrets.token_hex(32)

    def run_job(self, start):
        """Runs the processes that `start` starts in the network."""
        started = self.network.run(start)
        for worker in started:
            self.addCleanup(worker.kill)
        for worker in started:
            self.assertEqual(worker.wait(120)[0], 0, worker.text())

    def check_nothing_is_read(self, recording, values, secret, texts):
        """`values` maps names to blocks."""
        values = values | {"secret": blocks_of_secret(secret)}
        wanted = set().union(*values.values())
        print(f"\n{self.id()}: {recording.num_bytes():,} bytes in {len(recording.packets):,} packets, {len(wanted):,} blocks "
              f"looked for", flush=True)
        found = found_in(recording, wanted)
        self.assertEqual({name: len(found & of_name) for name, of_name in values.items()}, dict.fromkeys(values, 0))
        for text in texts:
            self.assertFalse(any(text.encode() in recorded for recorded in recording.texts), text)
        for stream in recording.streams:
            self.assertTrue(is_encrypted(stream), f"from port {stream.source} to port {stream.destination}: {stream.data[:64]}")


class SearchTest(RecordingCase):
    def test_what_crosses_in_the_clear_is_found(self):
        values = secrets.token_bytes(200_000)  # longer than a packet
        text = self.token.encode() + b"worker/0"

        def send():
            with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
                receiver, _ = server.accept()
                with receiver:
                    for part in (b"x", values[:7], values[7:], text):
                        client.sendall(part)
                        left = len(part)
                        while left:
                            left -= len(receiver.recv(left))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"y" + bytes.fromhex(self.token), ("127.0.0.1", 9))

        with self.network.recording() as recording:
            self.network.run(send)
        self.assertEqual(recording.lost, 0)
        self.assertEqual(len(found_in(recording, blocks(values))), len(blocks(values)))
        token = blocks(self.token.encode(), stride=1) | blocks(bytes.fromhex(self.token), stride=1)
        self.assertEqual(found_in(recording, blocks_of_secret(self.token)), token)
        stream, = recording.streams
        self.assertEqual(stream.data, b"x" + values + text)
        self.assertFalse(is_encrypted(stream))


class WorkersTest(RecordingCase):
    def setUp(self):
        super().setUp()
        self.store_ports = []

    def train(self, epochs, flags, variables):
        """Trains until `epochs`, of two steps each, are done."""
        def change(index, environment):
            environment.update(LOCKSTEP_SHARED_MEMORY="0", LOCKSTEP_JOB_TOKEN=self.token)
            environment.update(variables)
            if not environment["LOCKSTEP_JOB_TOKEN"]:
                del environment["LOCKSTEP_JOB_TOKEN"]
            if index == 0:
                first = json.loads(environment["TF_CONFIG"])["cluster"]["worker"][0]
                self.store_ports.append(int(first.rpartition(":")[2]))

        command = [*TRAINING, "--epochs", str(epochs), "--backup-dir", str(self.backup), *flags]
        self.run_job(lambda: workers.start_workers(2, command, change))

    def record_training(self, *flags, **variables):
        """Trains two steps, resumes, and trains two more. Returns the recording, and the blocks of the parameters and of each
        step's gradients by name."""
        values = {}
        num_bytes = 0
        with self.network.recording() as recording:
            for epochs in (1, 2):
                self.train(epochs, flags, variables)
                for path in sorted(self.backup.glob("checkpoint-*")):  # it keeps two
                    state = saved_state.load(path / "state.pt")
                    gradients = saved_state.values_named(state, "momentum_buffer")
                    values[f"gradients of step {int(path.name.rpartition('-')[2])}"] = blocks_of(gradients)
                    num_bytes += sum(map(len, gradients))
        self.assertEqual(len(values), 4)
        values["parameters"] = blocks_of(state["model"].values())
        self.check_holds_all(recording, num_bytes)
        return recording, values

    def check_holds_all(self, recording, num_bytes):
        """The recording has lost nothing, and it holds the store, heartbeats and at least `num_bytes` bytes of exchanges."""
        self.assertEqual(recording.lost, 0)
        streams = recording.streams
        for port in self.store_ports:
            self.assertGreaterEqual(len({stream.source for stream in streams if stream.destination == port}), 2)
        of_exchanges = [stream for stream in streams if not {stream.source, stream.destination} & set(self.store_ports)]
        self.assertGreater(sum(len(stream.data) for stream in of_exchanges), num_bytes)
        heartbeats = [datagram for datagram in recording.datagrams if len(datagram.data) == HEARTBEAT]
        self.assertGreaterEqual(len({datagram.source for datagram in heartbeats}), 2 * len(self.store_ports))

    def test_encrypted_exchanges_cannot_be_read(self):
        recording, values = self.record_training()
        self.check_nothing_is_read(recording, values, self.token, TEXTS_OF_EXCHANGES + TEXTS_OF_STORE)

    def test_a_secret_of_the_user_cannot_be_read(self):
        recording, values = self.record_training(LOCKSTEP_JOB_TOKEN="", XDG_RUNTIME_DIR=str(self.folder))
        secret = (self.folder / "lockstep/user_secret").read_text(encoding="ascii").strip()
        self.check_nothing_is_read(recording, values, secret, TEXTS_OF_EXCHANGES + TEXTS_OF_STORE)

    def test_exchanges_without_encryption_can_be_read(self):
        recording, values = self.record_training("--encrypt", "off")
        found = found_in(recording, set().union(*values.values()))
        for name, wanted in values.items():
            num_found = len(found & wanted)
            print(f"\n{name}: {num_found:,} of {len(wanted):,} blocks found", flush=True)
            # A few blocks are in no message: each worker sends another half of a sum.
            self.assertGreater(num_found / len(wanted), 0.999, name)
        for text in TEXTS_OF_EXCHANGES:
            self.assertTrue(any(text.encode() in recorded for recorded in recording.texts), text)
        self.assertFalse(all(is_encrypted(stream) for stream in recording.streams))
        self.assertEqual(found_in(recording, blocks_of_secret(self.token)), set())


class ServersTest(RecordingCase):
    def train(self, steps):
        """Returns the port of the parameter server."""
        ports = set()

        def change(_, environment):
            environment["LOCKSTEP_JOB_TOKEN"] = self.token
            server, = json.loads(environment["TF_CONFIG"])["cluster"]["ps"]
            ports.add(int(server.rpartition(":")[2]))

        command = [*SERVED, "--steps", str(steps), "--backup-dir", str(self.backup)]
        self.run_job(lambda: workers.start_served(2, command, change).values())
        return ports.pop()

    def variables(self, step):
        """The values of all variables in the checkpoint of a step, by name."""
        folder = self.backup / f"checkpoint-{step:012}"
        shards = saved_state.load(folder / "server-0.pt")["shards"]
        return {shard["name"]: saved_state.load(folder / shard["file"])["values"] for shard in shards}

    def test_rows_parameters_and_gradients_cannot_be_read(self):
        with self.network.recording() as recording:
            ports = [self.train(1)]
            first = self.variables(1)
            ports.append(self.train(9))
            last = self.variables(9)
        self.assertEqual(recording.lost, 0)
        for port in ports:
            clients = [stream for stream in recording.streams if stream.source == port]
            self.assertGreaterEqual(len(clients), 3)  # the chief and two workers
            self.assertGreater(sum(len(stream.data) for stream in clients), sum(map(len, first.values())))
        values = {"variables after the first step": blocks_of(first.values()),
                  "variables after the last step": blocks_of(last.values()),
                  "gradient of the weights": blocks(negated(first["weights.weight"]))}
        for name, wanted in values.items():
            self.assertGreater(len(wanted), 100, name)
        self.check_nothing_is_read(recording, values, self.token, [HOST, str(self.backup), *first])


if __name__ == "__main__":
    unittest.main()
