"""PyTorch's DistributedDataParallel over Gloo on the CPU: MobileNetV2, channels_last, fused Adam, random images.

Needs torch and torchvision. One process a replica with one thread each; rank 0, which is talked to, starts the others.
"""

import os
import shutil
import subprocess
import sys
import tempfile

import job

parser = job.parse_flags()
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--meeting-point", default="")
flags = parser.parse_args()

others = []
if flags.rank == 0:
    # Before torch is loaded, so that all ranks load it at the same time.
    folder = tempfile.mkdtemp(prefix="torch_ddp_")
    flags.meeting_point = os.path.join(folder, "store")
    others = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--rank", str(rank), "--meeting-point", flags.meeting_point],
            stdin=subprocess.DEVNULL, stdout=sys.stderr)
        for rank in range(1, flags.replicas)
    ]

import torch
import torch.distributed as dist
import torchvision

torch.set_num_threads(1)
torch.manual_seed(flags.rank)
dist.init_process_group("gloo", init_method=f"file://{flags.meeting_point}", rank=flags.rank, world_size=flags.replicas)
network = torchvision.models.mobilenet_v2(num_classes=10).to(memory_format=torch.channels_last)
model = torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
shard = flags.global_batch_size // flags.replicas
images = torch.randn(shard, 3, flags.image_size, flags.image_size).to(memory_format=torch.channels_last)
labels = torch.randint(0, 10, (shard,))


def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def agree_on(steps):
    """Rank 0's number of steps, on every rank."""
    count = torch.tensor([steps])
    dist.broadcast(count, 0)
    return int(count)


def train(steps):
    for _ in range(agree_on(steps)):
        step()


if flags.rank == 0:
    try:
        job.serve(train, sum(parameter.numel() for parameter in network.parameters()))
        agree_on(0)
    finally:
        for other in others:
            other.wait()
        shutil.rmtree(folder, ignore_errors=True)
else:
    while steps := agree_on(0):
        for _ in range(steps):
            step()
dist.destroy_process_group()
