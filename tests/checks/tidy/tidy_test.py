#!/usr/bin/env python3
"""tidy_test.py CLANG_TIDY: what tidy.py looks up, and what it runs anew."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("tidy.py")
CHECKS = "-*,modernize-use-nullptr"
CLEAN = "int* pointer = nullptr;\n"
FINDING = "int* pointer = 0;\n"
AGAIN = "has passed on this text before"


class TidyTest(unittest.TestCase):
    clang_tidy = "clang-tidy"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.config = self.root / "config"
        self.config.write_text("WarningsAsErrors: '*'\nHeaderFilterRegex: '.*'\n", encoding="utf-8")
        self.source = self.root / "source.cpp"

    def run_on(self, text, *flags, checks=CHECKS):
        self.source.write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, "-B", SCRIPT, self.clang_tidy, self.config, checks, self.source, *flags],
                              env={**os.environ, "LOCKSTEP_CACHE": str(self.root / "cache")}, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_a_text_that_has_passed_is_not_read_again(self):
        first, second = self.run_on(CLEAN), self.run_on(CLEAN)
        self.assertEqual((first.returncode, second.returncode), (0, 0), first.stdout + second.stdout)
        self.assertNotIn(AGAIN, first.stdout)
        self.assertIn(AGAIN, second.stdout)

    def test_findings_are_told_each_time(self):
        for _ in range(2):
            result = self.run_on(FINDING)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("modernize-use-nullptr", result.stdout)

    def test_a_change_of_anything_read_is_noticed(self):
        header = self.root / "header.h"
        header.write_text("", encoding="utf-8")
        text = '#include "header.h"\n#ifdef WITH\n' + FINDING + "#endif\n" + CLEAN.replace("pointer", "other")
        self.assertEqual(self.run_on(text).returncode, 0)
        self.assertNotEqual(self.run_on(text, "-DWITH").returncode, 0)
        header.write_text(FINDING, encoding="utf-8")
        self.assertNotEqual(self.run_on(text).returncode, 0)

    def test_a_suppression_that_goes_is_noticed(self):
        self.assertEqual(self.run_on(FINDING.replace(";", ";  // NOLINT")).returncode, 0)
        self.assertNotEqual(self.run_on(FINDING).returncode, 0)

    def test_a_change_of_the_checks_and_the_configuration_is_noticed(self):
        self.assertEqual(self.run_on(FINDING, checks="-*,bugprone-unused-raii").returncode, 0)
        self.assertNotEqual(self.run_on(FINDING).returncode, 0)
        self.config.write_text("WarningsAsErrors: ''\n", encoding="utf-8")
        self.assertEqual(self.run_on(FINDING).returncode, 0)
        self.assertIn(AGAIN, self.run_on(FINDING).stdout)

    def test_a_text_that_does_not_compile_fails(self):
        self.assertNotEqual(self.run_on("int* pointer = ;\n").returncode, 0)


if __name__ == "__main__":
    TidyTest.clang_tidy = sys.argv.pop()
    unittest.main()
