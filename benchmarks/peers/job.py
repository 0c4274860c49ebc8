"""Code that the peers' programs share: the conversation with speed_benchmark (remote_training.h) and the flags."""

import argparse
import resource
import sys
import time


def parse_flags():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--global-batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--sequence-length", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6, help="of the GPT")
    parser.add_argument("--width", type=int, default=384, help="of the GPT's layers")
    parser.add_argument("--model", choices=["mobilenet_v2", "gpt"], default="mobilenet_v2")
    parser.add_argument("--gpus", default="", help="such as gpu:0,gpu:1, a replica on each; else the CPU")
    parser.add_argument("--bfloat16", action="store_true", help="forward and loss by autocast")
    return parser


def serve(train, num_parameters, last_loss=None):
    """Answers requests until the input ends; train(steps) blocks until the steps are done."""
    train(1)
    print("ready", num_parameters, flush=True)
    for line in sys.stdin:
        if line.strip() == "peak_memory":
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
            continue
        if line.strip() == "loss":
            print(last_loss(), flush=True)
            continue
        begin = time.perf_counter()
        train(int(line))
        print(time.perf_counter() - begin, flush=True)
