#!/usr/bin/env python3
"""Draws what each rank of a mesh holds, as two SVGs for pages in light and dark: mesh_picture.py FOLDER

Three meshes of four ranks, as docs/parallelism.md describes them. The pictures are mesh_light.svg and mesh_dark.svg.
"""

import dataclasses
import pathlib
import sys

PARTS = ("parameters", "batch", "sequence")
# Okabe and Ito's colors, which most color-blind people tell apart.
COLORS = {"parameters": "#0072b2", "batch": "#e69f00", "sequence": "#009e73"}
ALL = (0, 1, 2, 3)
CARD, CARD_HEIGHT, GAP, CELL = 186, 118, 14, 20
MARGIN = 10  # of a replica around its cards


@dataclasses.dataclass(frozen=True)
class Mesh:
    """A mesh data=2,<axis>=2, and the quarters of everything that a rank holds, by its places on both axes."""

    axis: str
    note: str
    ranks_of_replica: int
    held: dict


def halves(index):
    return (2 * index, 2 * index + 1)


MESHES = (
    Mesh("tensor", "parallel layers, parallelize(): each rank computes with its part of every cut layer", 2,
         {"parameters": lambda data, own: halves(own), "batch": lambda data, own: halves(data), "sequence": lambda data, own: ALL}),
    Mesh("shard", "sharding, stage 3: parameters are whole only while their unit computes", 1,
         {"parameters": lambda data, own: halves(own), "batch": lambda data, own: (2 * data + own,),
          "sequence": lambda data, own: ALL}),
    Mesh("context", "long sequences: in zigzag order, a rank has an early and a late chunk of each sequence", 2,
         {"parameters": lambda data, own: ALL, "batch": lambda data, own: halves(data),
          "sequence": lambda data, own: (own, 3 - own)}),
)


def card(mesh, rank, left, top):
    """Yields the shapes of one rank."""
    data, own = divmod(rank, 2)
    yield f'  <rect class="card" x="{left}" y="{top}" width="{CARD}" height="{CARD_HEIGHT}" rx="5"/>'
    yield f'  <text class="value" x="{left + 10}" y="{top + 20}">rank {rank}</text>'
    yield f'  <text class="note" x="{left + CARD - 10}" y="{top + 20}" text-anchor="end">data {data}, {mesh.axis} {own}</text>'
    for line, part in enumerate(PARTS):
        y = top + 34 + line * 27
        yield f'  <text class="note" x="{left + 10}" y="{y + 14}">{part}</text>'
        held = mesh.held[part](data, own)
        for cell in ALL:
            style = f'class="held" fill="{COLORS[part]}"' if cell in held else 'class="other"'
            yield f'  <rect {style} x="{left + 90 + cell * (CELL + 1)}" y="{y}" width="{CELL}" height="{CELL}"/>'


def row(mesh, top):
    """Yields the shapes of a mesh."""
    yield f'  <text class="value" x="0" y="{top + 14}">data=2,{mesh.axis}=2</text>'
    yield f'  <text class="note" x="160" y="{top + 14}">{mesh.note}</text>'
    for replica in range(4 // mesh.ranks_of_replica):
        first = replica * mesh.ranks_of_replica
        left = first * (CARD + GAP + 2 * MARGIN)
        width = mesh.ranks_of_replica * (CARD + GAP + 2 * MARGIN) - GAP
        yield f'  <rect class="replica" x="{left + 0.5}" y="{top + 26.5}" width="{width}" height="{CARD_HEIGHT + 38}" rx="8"/>'
        yield f'  <text class="note" x="{left + MARGIN}" y="{top + 43}">replica {replica}</text>'
        inner = (width - 2 * MARGIN - mesh.ranks_of_replica * CARD) / max(1, mesh.ranks_of_replica - 1)
        for index in range(mesh.ranks_of_replica):
            yield from card(mesh, first + index, left + MARGIN + index * (CARD + inner), top + 52)


def picture(is_dark):
    text, note, line, page, panel = (("#e6edf3", "#9198a1", "#6e7681", "#0d1117", "#151b23") if is_dark else
                                     ("#1f2328", "#59636e", "#8c959f", "#ffffff", "#f6f8fa"))
    shapes, top = [], 0
    for mesh in MESHES:
        shapes += row(mesh, top)
        top += CARD_HEIGHT + 94
    width, height = 4 * (CARD + 2 * MARGIN) + 3 * GAP + 1, top + 4
    label = "What each of four ranks holds of the parameters, the batch and the sequence; the list below says it in words"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"',
        f'     aria-label="{label}">',
        "  <style>",
        f'    text {{ font: 14px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: {text} }}',
        f"    .note {{ font-size: 12px; fill: {note} }}",
        "    .value { font-weight: 600 }",
        f"    .replica {{ fill: {panel}; stroke: {line} }}",
        f"    .card {{ fill: {page}; stroke: {line} }}",
        f"    .held {{ stroke: {text} }}",
        f"    .other {{ fill: none; stroke: {line}; stroke-dasharray: 2 2 }}",
        "  </style>",
        *shapes,
        f'  <text class="note" x="0" y="{height - 8}">Each bar is the whole; a rank holds its filled quarters.</text>',
        "</svg>",
    ]) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, is_dark in (("light", False), ("dark", True)):
        pathlib.Path(sys.argv[1], f"mesh_{name}.svg").write_text(picture(is_dark), encoding="utf-8")


if __name__ == "__main__":
    main()
