"""The model of `speed_benchmark --model gpt` as users of PyTorch write it: pre-norm blocks with learned positions, attention
by scaled_dot_product_attention, one product for queries, keys and values, and a head of its own. Needs torch."""

import torch
from torch import nn

HEAD_WIDTH, VOCABULARY = 64, 256


class Block(nn.Module):
    def __init__(self, width, has_one_product):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        if has_one_product:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.attention_output = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attention(self, x):
        parts = self.qkv(x).chunk(3, -1) if hasattr(self, "qkv") else (self.query(x), self.key(x), self.value(x))
        heads = [part.unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for part in parts]
        attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.attention_output(attended.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    """Has three products for queries, keys and values if it is to be cut, as PyTorch cuts none of one product."""

    def __init__(self, sequence_length, layers, width, is_to_be_cut=False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(sequence_length, width)
        self.blocks = nn.Sequential(*[Block(width, not is_to_be_cut) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.apply(initialize)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.size(1)]
        return self.head(self.norm(self.blocks(x)))


class Stage(nn.Module):
    """Some of a Gpt's blocks, with what comes before the first or after the last of all."""

    def __init__(self, network, begin, end):
        super().__init__()
        if begin == 0:
            self.tokens, self.positions = network.tokens, network.positions
        self.blocks = network.blocks[begin:end]
        if end == len(network.blocks):
            self.norm, self.head = network.norm, network.head

    def forward(self, x):
        if hasattr(self, "tokens"):
            x = self.tokens(x) + self.positions.weight[: x.size(1)]
        x = self.blocks(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


def cut(model, mesh):
    """Heads and hidden features of each block are divided among the ranks of the mesh."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {name: ColwiseParallel() for name in ("query", "key", "value", "mlp.0")}
    plan |= {name: RowwiseParallel() for name in ("attention_output", "mlp.2")}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)


def initialize(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if getattr(module, "bias", None) is not None:
        nn.init.zeros_(module.bias)


def draw_known_weights(model):
    """Lockstep draws the same (workload_model.cpp), so that losses can be compared."""
    tables = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    for number, table in enumerate(tables, start=1):
        nn.init.normal_(table, std=0.02, generator=torch.Generator().manual_seed(number))


def random_batch(sequences, sequence_length, device):
    """Returns tokens, and the ones that follow them."""
    tokens = torch.randint(VOCABULARY, (sequences, sequence_length + 1), device=device)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
