#!/usr/bin/env python3
"""Links a library to ones that are gone then, and loads it with stand-ins in their place."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "stub_libraries.py"
LOAD = "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); [getattr(library, name)() for name in sys.argv[2:]]"


class StubLibrariesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.libraries = self.root / "torch" / "lib"
        self.beside = self.root / "nvidia" / "cu13" / "lib"
        for folder in [self.libraries, self.beside, self.root / "gone"]:
            folder.mkdir(parents=True)
        blas = self.compile(self.root / "gone", "libcublas.so.13", "void cublasCreate(void) {}", version="libcublas.so.13")
        nccl = self.compile(self.root / "gone", "libnccl.so.2", "void ncclSend(void) {}")
        runtime = self.compile(self.beside, "libcudart.so.13", "void cudaMalloc(void) {}")
        cuda = self.compile(self.libraries, "libtorch_cuda.so", "void ncclSend(void); void send_it(void) { ncclSend(); }", nccl)
        self.torch = self.compile(
            self.libraries, "libtorch_python.so",
            "void cublasCreate(void); void cudaMalloc(void); void send_it(void); void idle(void) {}\n"
            "void create(void) { cublasCreate(); } void allocate(void) { cudaMalloc(); } void send_all(void) { send_it(); }",
            blas, runtime, cuda, "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/cu13/lib")

    def compile(self, folder, name, text, *arguments, version=None):
        source = self.root / "source.c"
        source.write_text(text, encoding="utf-8")
        if version:
            (self.root / "versions").write_text(f"{version} {{ global: *; }};\n", encoding="utf-8")
            arguments = (*arguments, f"-Wl,--version-script={self.root / 'versions'}")
        subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-Wl,--no-as-needed,--allow-shlib-undefined", source,
                        "-o", folder / name, *arguments], check=True)
        return folder / name

    def make(self, compiler="cc"):
        return subprocess.run([sys.executable, "-B", SCRIPT, self.libraries, self.root / "stubs", compiler], check=True,
                              capture_output=True, text=True).stdout

    def load(self, *functions):
        return subprocess.run([sys.executable, "-c", LOAD, self.torch, *functions], capture_output=True, text=True, check=False,
                              env={**os.environ, "LD_LIBRARY_PATH": str(self.root / "stubs")})

    def test_a_library_loads_with_stand_ins_for_those_that_are_missing(self):
        self.assertIn("libcublas.so.13", self.load().stderr)
        self.assertEqual(self.make(), "2 stand-ins: libcublas.so.13, libnccl.so.2\n")
        process = self.load("idle", "allocate")
        self.assertEqual((process.returncode, process.stderr), (0, ""))

    def test_a_compiler_for_cpp_makes_the_same_stand_ins(self):
        self.make("c++")
        process = self.load("idle", "allocate")
        self.assertEqual((process.returncode, process.stderr), (0, ""))

    def test_a_call_of_a_stand_in_ends_the_process_and_names_the_function(self):
        self.make()
        for function, expected in [("create", "cublasCreate: this is a stand-in for libcublas.so.13"),
                                   ("send_all", "ncclSend: this is a stand-in for libnccl.so.2")]:
            process = self.load(function)
            self.assertLess(process.returncode, 0)
            self.assertIn(expected, process.stderr)


if __name__ == "__main__":
    unittest.main()
