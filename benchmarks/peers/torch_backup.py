"""PyTorch's DistributedDataParallel under torchrun, backed up: for reliability_benchmark.py.

MobileNetV2, channels_last, fused Adam, random images, over Gloo. A training saves as PyTorch's elastic examples do: rank 0
writes model and optimizer by torch.save() under another name and renames that. Blocks also measure
torch.distributed.checkpoint's async_save(), which each rank takes part in. Needs torch and torchvision.
"""

import os
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torchvision
from torch.distributed.checkpoint.state_dict import get_state_dict

import backup_lines

flags = backup_lines.parse_flags()
torch.set_num_threads(1)
dist.init_process_group("gloo")
# Its own: what is saved meanwhile would get between the gradients.
saving = dist.new_group(backend="gloo")
rank, world = dist.get_rank(), dist.get_world_size()
backup_lines.say_pid(rank)
torch.manual_seed(rank)
network = torchvision.models.mobilenet_v2(num_classes=10).to(memory_format=torch.channels_last)
model = torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
shard = flags.global_batch_size // world
images = torch.randn(shard, 3, flags.image_size, flags.image_size).to(memory_format=torch.channels_last)
labels = torch.randint(0, 10, (shard,))
os.makedirs(flags.backup_dir, exist_ok=True)
path = os.path.join(flags.backup_dir, "checkpoint.pt")


def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def save(number):
    if rank == 0:
        torch.save({"step": number, "model": network.state_dict(), "optimizer": optimizer.state_dict()}, path + ".tmp")
        os.replace(path + ".tmp", path)


def begin_async_save(number):
    folder = os.path.join(flags.backup_dir, f"async-{number}")
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return folder, dcp.async_save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder,
                                  process_group=saving)


def measure_block(kind, number):
    pending = folder = None
    dist.barrier()
    begin = time.monotonic()
    for index in range(flags.steps):
        step()
        if index == 0 and kind == "synchronous":
            save(number)
        if index == 0 and kind == "asynchronous":
            folder, pending = begin_async_save(number)
    if pending is not None:
        pending.result()
    if rank == 0:
        backup_lines.say_block(kind, time.monotonic() - begin)
    dist.barrier()
    if rank == 0 and folder:
        shutil.rmtree(folder)


def train():
    start = 0
    if os.path.exists(path):
        saved = torch.load(path)
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]
    if rank == 0:
        backup_lines.say("begin", rank, start)
    for number in range(start + 1, flags.steps + 1):
        step()
        if number % flags.save_every == 0:
            save(number)
        if rank == 0:
            backup_lines.say("step", rank, number)


if flags.blocks:
    step()
    step()
    for block in range(flags.blocks):
        for kind in backup_lines.kinds_of_block(["none", "synchronous", "asynchronous"], block):
            measure_block(kind, block)
else:
    train()
dist.destroy_process_group()
