#!/usr/bin/env python3
"""Compares collectives with those of PyTorch's torch.distributed, over Gloo, on the same values."""

import json
import os
import subprocess
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.multiprocessing as mp

PEER = os.environ["COLLECTIVES_PEER"]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8"]
RANKS = 3


def numbers(seed, shape, dtype):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + seed * 3) % 11).view(shape).to(getattr(torch, dtype))


def results_of(rank, ranks):
    """Yields (collective, dtype, tensor) of one of PyTorch's processes."""
    for dtype in DTYPES:
        whole = numbers(rank, (2 * ranks, 3), dtype)
        part = torch.empty((2, 3), dtype=whole.dtype)
        dist.reduce_scatter(part, list(whole.chunk(ranks)))
        yield "reduce_scatter", dtype, part

        rows = [[(source + 2 * to) % 3 for to in range(ranks)] for source in range(ranks)]
        sent = torch.cat([numbers(10 * rank + to, (rows[rank][to], 2), dtype) for to in range(ranks)])
        received = [rows[source][rank] for source in range(ranks)]
        got = torch.empty((sum(received), 2), dtype=whole.dtype)
        dist.all_to_all_single(got, sent, received, rows[rank])
        yield "all_to_all", dtype, got

        got = torch.empty_like(whole)
        dist.all_to_all_single(got, whole)
        yield "all_to_all_single", dtype, got

        got = torch.empty_like(whole)
        sending = dist.isend(whole, (rank + 1) % ranks)
        dist.recv(got, (rank - 1) % ranks)
        sending.wait()
        yield "ring", dtype, got

    def gradient_of(function):
        value = numbers(rank, (2 * ranks, 3), "float64").requires_grad_()
        (function(value).pow(2) * (rank + 1)).sum().backward()
        return value.grad

    def reduce_scatter(value):
        return dist_nn.reduce_scatter(torch.empty((2, 3), dtype=value.dtype), list(value.chunk(ranks)))

    def all_to_all(value):
        return dist_nn.all_to_all_single(torch.empty_like(value), value)

    def all_gather(value):
        return torch.cat(dist_nn.all_gather(value))

    yield "reduce_scatter_gradient", "float64", gradient_of(reduce_scatter)
    yield "all_to_all_gradient", "float64", gradient_of(all_to_all)
    yield "all_gather_gradient", "float64", gradient_of(all_gather)


def run_process(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    torch.save(list(results_of(rank, ranks)), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def results_of_pytorch():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_process, args=(RANKS, folder), nprocs=RANKS)
        return {(rank, collective, dtype): value
                for rank in range(RANKS)
                for collective, dtype, value in torch.load(f"{folder}/{rank}.pt")}


class Collectives(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = results_of_pytorch()

    def check(self, layout, transport="exchange"):
        process = subprocess.run([PEER, layout], capture_output=True, text=True, check=False, timeout=120,
                                 env={**os.environ, "LOCKSTEP_TEST_TRANSPORT": transport})
        self.assertEqual(process.returncode, 0, process.stderr)
        results = [json.loads(line) for line in process.stdout.splitlines()]
        self.assertEqual(len(results), len(self.expected))
        for result in results:
            key = (result["rank"], result["collective"], result["dtype"])
            with self.subTest(layout=layout, key=key):
                expected = self.expected[key]
                self.assertEqual(result["shape"], list(expected.shape))
                self.assertEqual(result["values"], expected.double().flatten().tolist())

    def test_between_replicas_of_one_process(self):
        self.check("3")

    def test_between_worker_processes(self):
        self.check("1,1,1")

    def test_between_workers_with_different_numbers_of_replicas(self):
        self.check("1,2")
        self.check("2,1")


if __name__ == "__main__":
    unittest.main()
