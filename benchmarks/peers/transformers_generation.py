"""Hugging Face's side of generation_benchmark.py: reads numbers of tokens from standard input, continues the same prompts by as
many with generate(), and answers with the seconds that it took and a sum of the tokens. Needs torch and transformers."""

import argparse
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--prompt-tokens", type=int, default=32)
flags = parser.parse_args()

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
model = transformers.AutoModelForCausalLM.from_pretrained(flags.model, dtype=torch.float32).eval()
model.generation_config.eos_token_id = None
size = model.config.vocab_size
prompts = torch.tensor([[(7919 * row + 104729 * i + 13) % size for i in range(flags.prompt_tokens)]
                        for row in range(flags.batch_size)])
print("ready", flush=True)
for request in sys.stdin:
    count = int(request)
    begin = time.perf_counter()
    with torch.inference_mode():
        tokens = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=count, do_sample=False,
                                pad_token_id=0)
    seconds = time.perf_counter() - begin
    new = tokens[:, prompts.size(1):]
    if new.size(1) != count:
        sys.exit(f"expected {count} tokens, but got {new.size(1)}")
    print(seconds, int(new.sum()), flush=True)
