"""The picture of sharding_memory_benchmark.py: a bar for each stage and number of ranks, cut into parts, as an SVG."""

PARTS = (("parameters", "parameters"), ("gradients", "gradients"), ("optimizer_state", "Adam's state"), ("buckets", "buckets"),
         ("gathered_units", "gathered units"))
# Okabe and Ito's colors, which most color-blind people tell apart.
COLORS = {"parameters": "#0072b2", "gradients": "#e69f00", "optimizer_state": "#009e73", "buckets": "#cc79a7", "gathered_units": "#d55e00"}
LEFT, WIDTH, BAR, GAP = 150, 480, 15, 4


def bars_of(results):
    """Groups of (stage, ranks), each with one result for each kind of ranks."""
    groups = {}
    for result in results:
        groups.setdefault((result["stage"], result["ranks"]), []).append(result)
    return sorted(groups.items())


def picture(results, parameters, is_dark):
    text, note, line = ("#e6edf3", "#9198a1", "#6e7681") if is_dark else ("#1f2328", "#59636e", "#8c959f")
    most = max(max(result["predicted_kept"] + result["predicted_parts"]["buckets"] + result["predicted_parts"]["gathered_units"],
                   sum(result["parts"].values())) for result in results)
    unit = WIDTH / most
    shapes, top, stage_before = [], 84, None
    for (stage, ranks), group in bars_of(results):
        if stage != stage_before:
            top += 10 if stage_before is not None else 0
            shapes.append(f'  <text class="value" x="0" y="{top + 12}">stage {stage}</text>')
            stage_before = stage
        shapes.append(f'  <text x="{LEFT - 8}" y="{top + 12}" text-anchor="end">{ranks} rank{"" if ranks == 1 else "s"}</text>')
        for result in group:
            x = LEFT
            for part, _ in PARTS:
                width = result["parts"][part] * unit
                if width > 0:
                    shapes.append(f'  <rect fill="{COLORS[part]}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{BAR}"/>')
                x += width
            predicted = LEFT + (result["predicted_kept"] + result["predicted_parts"]["buckets"] +
                                result["predicted_parts"]["gathered_units"]) * unit
            shapes.append(f'  <path class="formula" d="M{predicted:.1f} {top - 2} V{top + BAR + 2}"/>')
            shapes.append(f'  <text class="note" x="{max(x, predicted) + 8:.1f}" y="{top + 12}">'
                          f'{sum(result["parts"].values()) / 1e6:,.0f} MB, {result["way"]}</text>')
            top += BAR + GAP
        top += 4
    legend, x = [], LEFT
    for part, words in PARTS:
        legend.append(f'  <rect fill="{COLORS[part]}" x="{x}" y="32" width="12" height="12"/>')
        legend.append(f'  <text class="note" x="{x + 17}" y="42">{words}</text>')
        x += 17 + 6.3 * len(words) + 16
    legend.append(f'  <path class="formula" d="M{LEFT + 2} 52 V68"/>')
    legend.append(f'  <text class="note" x="{LEFT + 17}" y="64">the formula</text>')
    height = top + 26
    label = "Memory of each rank at the stages of sharding; the table has the numbers"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" width="800" height="{height}" role="img"',
        f'     aria-label="{label}">',
        "  <style>",
        f'    text {{ font: 14px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: {text} }}',
        f"    .note {{ font-size: 12px; fill: {note} }}",
        "    .value { font-weight: 600 }",
        f"    .axis {{ stroke: {line}; stroke-width: 1 }}",
        f"    .formula {{ stroke: {text}; stroke-width: 2; fill: none }}",
        "  </style>",
        '  <text class="value" x="0" y="18">Memory of each rank, by part</text>',
        *legend,
        f'  <line class="axis" x1="{LEFT}" y1="78" x2="{LEFT}" y2="{top - 2}"/>',
        *shapes,
        f'  <text class="note" x="0" y="{height - 8}">{parameters / 1e6:,.0f} M parameters in float32 with Adam, after 3 steps. '
        'Buckets and units at their most.</text>',
        "</svg>",
    ]) + "\n"
