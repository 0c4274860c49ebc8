#!/usr/bin/env python3
"""The picture of meshes: what its ranks hold is the whole together, and docs/images has what the script draws."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "mesh_picture.py"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))

import mesh_picture

# The ranks along the second axis hold each quarter: once if they share it, twice if both have all.
TIMES = {"tensor": {"parameters": 1, "batch": 2, "sequence": 2}, "shard": {"parameters": 1, "batch": 1, "sequence": 2},
         "context": {"parameters": 2, "batch": 2, "sequence": 1}}


class MeshPictureTest(unittest.TestCase):
    def test_ranks_along_an_axis_hold_the_whole_or_share_it(self):
        self.assertEqual({mesh.axis for mesh in mesh_picture.MESHES}, set(TIMES))
        for mesh in mesh_picture.MESHES:
            for part, times in TIMES[mesh.axis].items():
                with self.subTest(axis=mesh.axis, part=part):
                    along = [sorted(mesh.held[part](data, 0) + mesh.held[part](data, 1)) for data in (0, 1)]
                    # The axis data cuts the batch only.
                    whole = [sorted(along[0] + along[1])] if part == "batch" else along
                    for quarters in whole:
                        self.assertEqual(quarters, sorted([0, 1, 2, 3] * times))

    def test_docs_have_what_the_script_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-B", SCRIPT, folder], check=True, timeout=60)
            for name in ("mesh_light.svg", "mesh_dark.svg"):
                drawn = pathlib.Path(folder, name).read_text(encoding="utf-8")
                ElementTree.fromstring(drawn)
                self.assertEqual(drawn, (ROOT / "docs" / "images" / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
