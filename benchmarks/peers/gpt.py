"""The model of `speed_benchmark --model gpt` as users of PyTorch write it: pre-norm blocks with learned positions, attention
by scaled_dot_product_attention, one product for queries, keys and values, and a head of its own. Needs torch."""

import torch
from torch import nn

LAYERS, WIDTH, HEADS, VOCABULARY = 6, 384, 6, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.attention_output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def attention(self, x):
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]
        attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.attention_output(attended.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    def __init__(self, sequence_length):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(sequence_length, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.apply(initialize)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.size(1)]
        return self.head(self.norm(self.blocks(x)))


def initialize(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if getattr(module, "bias", None) is not None:
        nn.init.zeros_(module.bias)


def random_batch(sequences, sequence_length, device):
    """Returns tokens, and the ones that follow them."""
    tokens = torch.randint(VOCABULARY, (sequences, sequence_length + 1), device=device)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
