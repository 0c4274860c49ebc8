#!/usr/bin/env python3
"""Tests that check_openssl.py finds programs for which two versions of OpenSSL mix."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).parent / "check_openssl.py"
SOURCE = "int EVP_DigestInit_ex(void *, void *, void *); int main(void) { return EVP_DigestInit_ex(0, 0, 0); }"


class CheckOpensslTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        self.compile("lib1.so", "int EVP_DigestInit_ex(void *a, void *b, void *c) { return 0; }", "-shared", "-fPIC",
                     "-Wl,-soname,lib1.so")
        self.compile("libcrypto.so.3", "int EVP_DigestInit_ex(void *a, void *b, void *c) { return 1; }", "-shared", "-fPIC",
                     "-Wl,-soname,libcrypto.so.3")

    def compile(self, name, source, *options):
        subprocess.run([os.environ.get("CC", "cc"), "-x", "c", "-", "-o", self.folder / name, *options], input=source, check=True, text=True)

    def check(self, *libraries):
        paths = [str(self.folder / library) for library in libraries]
        self.compile("bin/program", SOURCE, f"-Wl,-rpath,{self.folder}", "-Wl,--no-as-needed", "-x", "none", *paths)
        return subprocess.run([sys.executable, "-B", CHECK, self.folder / "bin"], capture_output=True, text=True, check=False)

    def test_another_library_before_libcrypto_is_found(self):
        result = self.check("lib1.so", "libcrypto.so.3")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("bin/program: expected OpenSSL's functions from libcrypto, but", result.stdout)
        self.assertIn("lib1.so is loaded first", result.stdout)

    def test_libcrypto_before_another_library_is_right(self):
        result = self.check("libcrypto.so.3", "lib1.so")
        self.assertEqual((result.returncode, result.stdout), (0, "1 files use one OpenSSL\n"))

    def test_programs_without_libcrypto_are_right(self):
        self.assertEqual(self.check("lib1.so").returncode, 0)

    def test_a_folder_without_programs_is_an_error(self):
        result = subprocess.run([sys.executable, "-B", CHECK, self.folder / "bin"], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("found none", result.stdout)


if __name__ == "__main__":
    unittest.main()
