"""PyTorch's DistributedDataParallel: MobileNetV2, channels_last, fused Adam, random images.

Needs torch and torchvision. On the CPU over Gloo, one process a replica with one thread each; rank 0, which is talked to,
starts the others. On a GPU over NCCL, one process.
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

on_gpu = bool(flags.gpu)
if on_gpu and flags.replicas != 1:
    sys.exit("--replicas: expected 1 on a GPU, which NCCL gives to one process")
device = torch.device("cuda", int(flags.gpu.partition(":")[2] or 0)) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
else:
    torch.set_num_threads(1)
torch.manual_seed(flags.rank)
dist.init_process_group("nccl" if on_gpu else "gloo", init_method=f"file://{flags.meeting_point}", rank=flags.rank, world_size=flags.replicas)
network = torchvision.models.mobilenet_v2(num_classes=10).to(device, memory_format=torch.channels_last)
model = torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
shard = flags.global_batch_size // flags.replicas
images = torch.randn(shard, 3, flags.image_size, flags.image_size).to(device, memory_format=torch.channels_last)
labels = torch.randint(0, 10, (shard,)).to(device)


def step():
    optimizer.zero_grad()
    with torch.autocast(device.type, torch.bfloat16, enabled=flags.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()


def agree_on(steps):
    """Rank 0's number of steps, on every rank."""
    count = torch.tensor([steps], device=device)
    dist.broadcast(count, 0)
    return int(count)


def train(steps):
    for _ in range(agree_on(steps)):
        step()
    if on_gpu:
        torch.cuda.synchronize()


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
