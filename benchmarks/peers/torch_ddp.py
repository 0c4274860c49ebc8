"""PyTorch's DistributedDataParallel: MobileNetV2, channels_last, fused Adam, random images; or a GPT, fused AdamW, random tokens.
With --sharding, its ZeroRedundancyOptimizer beside it, or FSDP2 instead; with --tensor, its parallelize_module instead; with
--pipeline, its pipelining instead, which begins with known weights and answers `loss`, too.

Needs torch, and torchvision for MobileNetV2. One process for each replica: on the CPU over Gloo with its share of the cores, on
GPUs over NCCL with a GPU each. One replica on the CPU is the model alone. Rank 0, which reads the requests, starts the others.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import job

SECONDS_BETWEEN_LINES = 20
PR_SET_PDEATHSIG = 1
ASKS_FOR_LOSS = -1  # in place of a number of steps

parser = job.parse_flags()
parser.add_argument("--compile", action="store_true", help="the model under torch.compile in its default mode")
parser.add_argument("--sharding", choices=["none", "zero1", "fsdp2"], default="none",
                    help="divide the optimizer's state among the ranks, or parameters and gradients too: each block of a GPT a unit")
parser.add_argument("--tensor", action="store_true", help="divide the layers of a GPT among the ranks, which have the same batch")
parser.add_argument("--pipeline", choices=["gpipe", "1f1b", "interleaved"],
                    help="divide the blocks of a GPT among the ranks, which run this schedule")
parser.add_argument("--micro-batches", type=int, default=4, help="of a pipeline")
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--meeting-point", default="")
flags = parser.parse_args()
gpus = flags.gpus.split(",") if flags.gpus else []
if gpus and flags.replicas != len(gpus):
    sys.exit(f"--replicas: expected {len(gpus)}, one on each of --gpus {flags.gpus}, but got {flags.replicas}")

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
else:
    # If rank 0 is killed, a rank that waits for it in NCCL would keep its GPU busy.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

import torch
import torch.distributed as dist

device = torch.device("cuda", int(gpus[flags.rank].partition(":")[2])) if gpus else torch.device("cpu")
if gpus:
    torch.cuda.set_device(device)
else:
    torch.set_num_threads(max(1, os.cpu_count() // flags.replicas))
is_one_replica = flags.tensor or flags.pipeline is not None
torch.manual_seed(0 if is_one_replica else flags.rank)
dist.init_process_group("nccl" if gpus else "gloo", init_method=f"file://{flags.meeting_point}", rank=flags.rank, world_size=flags.replicas)
shard = flags.global_batch_size // (1 if is_one_replica else flags.replicas)
if flags.model == "gpt":
    import gpt

    network = gpt.Gpt(flags.sequence_length, flags.layers, flags.width, is_to_be_cut=flags.tensor).to(device)
    if flags.pipeline:
        gpt.draw_known_weights(network)
        torch.manual_seed(0)
    examples, targets = gpt.random_batch(shard, flags.sequence_length, device)
    weight_decay = 0.01
else:
    import torchvision

    network = torchvision.models.mobilenet_v2(num_classes=10).to(device, memory_format=torch.channels_last)
    examples = torch.randn(shard, 3, flags.image_size, flags.image_size).to(device, memory_format=torch.channels_last)
    targets = torch.randint(0, 10, (shard,)).to(device)
    weight_decay = 0  # AdamW is Adam then
num_parameters = sum(parameter.numel() for parameter in network.parameters())
is_alone = flags.replicas == 1 and not gpus
if flags.tensor:
    from torch.distributed.device_mesh import init_device_mesh

    gpt.cut(network, init_device_mesh(device.type, (flags.replicas,)))
    model = network
elif flags.pipeline:
    from torch.distributed import pipelining

    # ZB-V sends from a rank to itself, which Gloo does not do.
    numbers = [flags.rank, flags.replicas + flags.rank] if flags.pipeline == "interleaved" else [flags.rank]
    count = len(numbers) * flags.replicas
    begins = [flags.layers * number // count for number in range(count + 1)]
    model = torch.nn.ModuleList(gpt.Stage(network, begins[number], begins[number + 1]) for number in numbers)
    del network
    stages = [pipelining.PipelineStage(part, number, count, device) for part, number in zip(model, numbers)]
    kinds = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B, "interleaved": pipelining.ScheduleInterleaved1F1B}
    schedule = kinds[flags.pipeline](stages[0] if len(stages) == 1 else stages, flags.micro_batches,
                                     loss_fn=lambda logits, micro: torch.nn.functional.cross_entropy(logits.flatten(0, -2), micro.flatten()))
elif flags.sharding == "fsdp2":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (flags.replicas,))
    for block in network.blocks:
        fully_shard(block, mesh=mesh)
    model = fully_shard(network, mesh=mesh)
else:
    model = network if is_alone else torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)
if flags.compile:
    model = torch.compile(model)
adamw = {"lr": 1e-3, "weight_decay": weight_decay, "fused": True}
if flags.sharding == "zero1":
    from torch.distributed.optim import ZeroRedundancyOptimizer

    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **adamw)
else:
    # The fused kernel takes parameters that are cut and whole ones, but not both at once.
    groups = [[], []]
    for parameter in model.parameters():
        groups[hasattr(parameter, "device_mesh")].append(parameter)
    optimizer = torch.optim.AdamW([{"params": group} for group in groups if group], **adamw)


losses = []  # of the micro-batches of a pipeline's last step, on the rank that has the last stage


def step():
    optimizer.zero_grad()
    if flags.pipeline:
        losses.clear()
        inputs = [examples] if flags.rank == 0 else []
        schedule.step(*inputs, **({"target": targets, "losses": losses} if flags.rank == flags.replicas - 1 else {}))
        optimizer.step()
        return
    with torch.autocast(device.type, torch.bfloat16, enabled=flags.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(examples).flatten(0, -2), targets.flatten())
    loss.backward()
    optimizer.step()


def agree_on(steps):
    """Rank 0's number of steps, on every rank."""
    count = torch.tensor([steps], device=device)
    dist.broadcast(count, 0)
    return int(count)


def last_loss():
    """Of a pipeline, on every rank."""
    loss = torch.stack(losses).detach().mean() if losses else torch.zeros([])
    dist.broadcast(loss, flags.replicas - 1)
    return float(loss)


def ask_for_loss():
    agree_on(ASKS_FOR_LOSS)
    return last_loss()


def train(steps):
    for _ in range(agree_on(steps)):
        step()
    if gpus:
        torch.cuda.synchronize()


def train_first_step():
    """Prints a line from time to time: a step that compiles takes minutes, and silence would look as if it hung."""
    begin, has_ended = time.monotonic(), threading.Event()

    def tell():
        while not has_ended.wait(SECONDS_BETWEEN_LINES):
            print(f"torch_ddp.py: compiling for {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    threading.Thread(target=tell, daemon=True).start()
    train(1)
    has_ended.set()


if flags.rank == 0:
    try:
        if flags.compile:
            train_first_step()
        job.serve(train, num_parameters, ask_for_loss)
        agree_on(0)
    finally:
        for other in others:
            other.wait()
        shutil.rmtree(folder, ignore_errors=True)
else:
    while steps := agree_on(0):
        if steps == ASKS_FOR_LOSS:
            last_loss()
        for _ in range(steps):
            step()
dist.destroy_process_group()
if flags.sharding == "zero1":
    sys.stdout.flush()
    os._exit(0)  # the interpreter's own end aborts with ZeroRedundancyOptimizer
