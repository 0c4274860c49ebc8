"""Writes torchvision_reference.inc: what torchvision's mobilenet_v2 computes from weights and inputs given by a formula.

python make_torchvision_reference.py     (needs torch and torchvision; the file was made with 2.11 and 0.26)

The formula is that of reference_formula.h. Everything is computed in float64. To keep the file small, a tensor too
large to write down is represented by its digest, the sum of its elements times a tensor of the formula.
"""
import math
import pathlib

import torch
import torchvision

INPUT, DIGEST, LOSS = 1_000_000, 2_000_000, 3_000_000  # ordinals beyond those of a state_dict
EVALUATION = [(1.0, 64), (1.0, 96), (0.5, 64), (0.5, 96), (1.4, 64)]
TRAINING = [(1.0, 64), (0.5, 96)]


def formula(ordinal, shape):
    """Values in [-1, 1), a hash of ordinal and row-major index."""
    mask = 0xFFFFFFFF
    x = (torch.arange(math.prod(shape)) * 2654435761 + ordinal * 40503 + 1) & mask
    x = ((x ^ (x >> 15)) * 2246822519) & mask
    x = ((x ^ (x >> 13)) * 3266489917) & mask
    x = x ^ (x >> 16)
    return (x.double() / 2.0**31 - 1.0).reshape(shape)


def fill(model):
    for ordinal, (name, tensor) in enumerate(model.state_dict().items()):
        if name.endswith("num_batches_tracked"):
            continue
        value = formula(ordinal, tensor.shape)
        if name.endswith("running_var"):
            value = 1.0 + 0.5 * value
        elif tensor.dim() == 4:
            value = value * math.sqrt(6.0 / tensor[0].numel())
        elif tensor.dim() == 2:
            value = value * 0.005
        elif name.endswith("weight"):
            value = 1.0 + 0.25 * value
        else:
            value = 0.25 * value
        tensor.copy_(value)


def make(width):
    model = torchvision.models.mobilenet_v2(num_classes=10, width_mult=width, dropout=0.0).double()
    fill(model)
    return model


def digest(tensor):
    return (tensor.double() * formula(DIGEST, tensor.shape)).sum().item()


def numbers(values):
    return "{" + ", ".join(f"{value:.15g}" for value in values) + "}"


def main():
    lines = ["// Written by make_torchvision_reference.py; float64.", ""]
    with torch.no_grad():
        state = torchvision.models.mobilenet_v2(num_classes=10).state_dict()
    lines.append("const std::vector<StateShape> kStateShapes = {")
    for name, tensor in state.items():
        lines.append(f'    {{"{name}", {{{", ".join(map(str, tensor.shape))}}}}},')
    lines += ["};", "", "const std::vector<EvaluationReference> kEvaluation = {"]
    for width, size in EVALUATION:
        with torch.no_grad():
            logits = make(width).eval()(formula(INPUT, (2, 3, size, size)))
        lines.append(f"    {{{width}, {size},")
        lines.append("     {" + ",\n      ".join(numbers(row) for row in logits.tolist()) + "}},")
    lines += ["};", "", "const std::vector<TrainingReference> kTraining = {"]
    for width, size in TRAINING:
        with torch.no_grad():
            model = make(width).train()
        logits = model(formula(INPUT, (4, 3, size, size)))
        (logits * formula(LOSS, logits.shape)).sum().backward()
        lines.append(f"    {{{width}, {size},")
        lines.append("     {" + ",\n      ".join(numbers(row) for row in logits.tolist()) + "},")
        lines.append("     {")
        for name, buffer in model.named_buffers():
            if not name.endswith("num_batches_tracked"):
                lines.append(f'         {{"{name}", {digest(buffer):.15g}}},')
        lines += ["     },", "     {"]
        for name, parameter in model.named_parameters():
            lines.append(f'         {{"{name}", {digest(parameter.grad):.15g}}},')
        lines.append("     }},")
    lines += ["};", ""]
    pathlib.Path(__file__).with_name("torchvision_reference.inc").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
