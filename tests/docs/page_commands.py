"""The shell commands that a page in Markdown shows."""

import re

# Possible first words of a command. A block of code that begins with none of these is not shell.
TOOLS = re.compile(
    r"(\w+=\S*\s+)*(scripts/|build/|examples/|benchmarks/|\./|\S+/build/|\S+/bin/|"
    r"(train_images|train_ctr|train_gpt|plan|compare_strategies|inspect_run|export_weights|convert_data|inspect_data|lockstep_launch_local|launch_local\.sh|"
    r"cmake|ctest|ninja|git|cd|export|curl|pip|python3?|docker|kubectl|srun|sbatch|sinfo|torchrun|mpirun|horovodrun|"
    r"systemctl|sudo|loginctl|tensorboard|mlflow|promtool|openssl|mkdir|cp|printf|sha256sum|apt-get|wget|tar)(\s|$))")
FENCES = {"sh", "bash", "shell", "console"}


def code_blocks(text):
    """Yields (number of the first line, language or None for an indented block, lines) of each block of code."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence = re.match(r"(`{3,})([\w ]*)$", lines[at])
        if fence:
            end = next((i for i in range(at + 1, len(lines)) if lines[i].rstrip() == fence[1]), len(lines))
            yield at + 2, fence[2], lines[at + 1:end]
            at = end + 1
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield at + 1, None, [line[4:] for line in lines[at:end]]
            at = end
        else:
            at += 1


def is_shell(lines):
    """Whether the lines of an indented block are shell commands."""
    words = [line for line in lines if line.strip() and not line.startswith("#")]
    return any(line.startswith("$ ") for line in lines) or bool(words and TOOLS.match(words[0]))


def commands(text):
    """Returns (line, command) of each command on a page. A command that ends in a backslash takes in the next line, and a
    block that begins with `#!` is one command."""
    result = []
    for first, language, lines in code_blocks(text):
        if language is not None and language not in FENCES:
            continue
        if lines and lines[0].startswith("#!"):
            result.append((first, "\n".join(lines).rstrip() + "\n"))
            continue
        if language is None and not is_shell(lines):
            continue
        is_console = any(line.startswith("$ ") for line in lines)
        at = 0
        while at < len(lines):
            line, start = lines[at], at
            at += 1
            if is_console and not line.startswith("$ "):
                continue  # what the command prints
            line = line.removeprefix("$ ")
            if not line.strip() or line.startswith("#"):
                continue
            while line.endswith("\\") and at < len(lines):
                line = line[:-1] + lines[at].strip()
                at += 1
            result.append((first + start, line.strip()))
    return result
