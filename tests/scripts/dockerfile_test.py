#!/usr/bin/env python3
"""Checks of the Dockerfile that need no Docker: dockerfile_test.py <source root> <LibTorch>

They do not build it.
"""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
LIBTORCH = sys.argv[2]


def instructions():
    """(instruction, its arguments) of the Dockerfile, continued lines joined, comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def context():
    """The paths below the source root that .dockerignore leaves, of those at its top. Patterns begin with a name or `!` and a name."""
    kept = set()
    for pattern in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if pattern == "*":
            kept.clear()
        elif pattern.startswith("!"):
            kept.add(pattern[1:])
    return kept


class DockerfileTest(unittest.TestCase):
    def stages(self):
        stages = [[]]
        for instruction in instructions():
            if instruction[0] == "FROM":
                stages.append([])
            stages[-1].append(instruction)
        self.assertEqual({name for name, _ in stages[0]}, {"ARG"})
        return stages[1:]

    def test_instructions_are_known(self):
        known = {"ARG", "FROM", "ENV", "WORKDIR", "SHELL", "COPY", "RUN", "USER", "CMD"}
        self.assertEqual({name for name, _ in instructions()} - known, set())

    def test_each_stage_is_made_from_one_image_that_a_digest_names(self):
        (base,) = [arguments for name, arguments in instructions() if name == "ARG"]
        self.assertRegex(base, r"^BASE=debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}$")
        self.assertEqual([stage[0][1].split(" AS ")[0] for stage in self.stages()], ["${BASE}"] * 2)

    def test_what_it_copies_is_there(self):
        names = []
        for stage in self.stages():
            names += [arguments.split(" AS ")[1] for name, arguments in stage if name == "FROM" and " AS " in arguments]
            for name, arguments in stage:
                if name != "COPY":
                    continue
                words = shlex.split(arguments)
                if words[0].startswith("--from="):
                    self.assertIn(words[0].removeprefix("--from="), names)
                    continue
                for source in words[:-1]:
                    self.assertTrue((ROOT / source).exists(), source)
                    self.assertTrue(source == "." or source.split("/")[0] in context(), f"{source} is in .dockerignore")

    def test_what_the_context_has_is_there(self):
        self.assertEqual([name for name in context() if not (ROOT / name).exists()], [])

    def test_its_commands_are_shell(self):
        for name, arguments in instructions():
            if name == "RUN":
                subprocess.run(["bash", "-n", "-c", arguments], check=True)

    def test_it_ends_as_a_user_who_is_not_root(self):
        users = [arguments for name, arguments in self.stages()[-1] if name == "USER"]
        self.assertEqual(len(users), 1)
        self.assertNotIn(users[0], ("root", "0"))

    def test_its_context_configures(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "source")
            source.mkdir()
            for name in context():
                path = ROOT / name
                (shutil.copytree if path.is_dir() else shutil.copy)(path, source / name)
            options = [word for name, arguments in instructions() if name == "RUN"
                       for word in re.findall(r"-DLOCKSTEP_\w+=\w+", arguments)]
            self.assertEqual(len(options), 2)
            done = subprocess.run(["cmake", "--preset", "release", *options, "-DLOCKSTEP_CUDA=OFF", f"-DCMAKE_PREFIX_PATH={LIBTORCH}"],
                                  cwd=source, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
