#!/usr/bin/env python3
"""Output of scripts/fuzz.sh about its targets, with other programs in place of the fuzzers."""

import shutil
import subprocess
import unittest

import scripts_case


class FuzzScriptTest(scripts_case.ScriptsCase):
    def fuzz(self, *arguments):
        """The completed process of fuzz.sh, for three targets, one of which fails."""
        self.packages()
        self.program("dpkg-query", "echo -n installed\n")
        self.program("cmake", "")
        folder = self.project / "build" / "fuzz"
        (folder / "bin").mkdir(parents=True)
        (folder / "findings").mkdir()
        (folder / "findings" / "late_crash-crash-1").write_bytes(b"input")
        (folder / "targets.txt").write_text("good\nbad\nlate_crash\n", encoding="utf-8")
        self.program("../project/build/fuzz/bin/write_seeds", 'mkdir -p "$1"/good\n')
        log = """
            echo "$*" >>"$CALLS/${0##*/}"
            echo "#3 INITED cov: 40 ft: 41 corp: 1/1b exec/s: 0 rss: 30Mb"
            echo "#9 NEW    cov: 47 ft: 50 corp: 2/2b exec/s: 0 rss: 30Mb" >&2
            echo "stat::number_of_executed_units: 1234"
            """
        for name, end in {"good": "", "bad": 'echo "expected all pixels"; exit 77',
                          "late_crash": 'echo "Test unit written to build/fuzz/findings/late_crash-crash-1"; exit 1'}.items():
            self.program(f"../project/build/fuzz/bin/fuzz_{name}", log + end)
        return subprocess.run(
            ["bash", str(self.project / "scripts" / "fuzz.sh"), *arguments], env=self.environment, capture_output=True,
            text=True, check=False, timeout=60)

    def test_fuzzing_tells_each_target_and_fails_for_a_finding(self):
        process = self.fuzz("--seconds", "7")
        self.assertEqual(process.returncode, 1)
        self.assertIn("2 of 3 targets failed", process.stderr)
        rows = [line.split() for line in process.stdout.splitlines()[1:4]]
        self.assertEqual([row[:2] + row[3:5] for row in rows],
                         [[name, "1234", "47", "7"] for name in ["good", "bad", "late_crash"]])
        self.assertEqual([row[6] for row in rows], ["ok", "FAILED:", "FAILED:"])
        self.assertIn("build/fuzz/findings/late_crash-crash-1,", rows[2])
        details = process.stdout.splitlines()[4:]
        self.assertIn("build/fuzz/logs/bad.log", details)
        self.assertIn("expected all pixels", "\n".join(details))
        of_crash = details[details.index("build/fuzz/logs/late_crash.log") + 1:]
        self.assertEqual(of_crash, ["the input, in base64:", "aW5wdXQ=", ""])
        call = self.calls_of("fuzz_good")[0].split()
        self.assertTrue({"-max_total_time=7", "-seed=1", "build/fuzz/seeds/good"} <= set(call), call)

    def test_fuzzing_takes_the_targets_that_are_named(self):
        process = self.expect_success(self.fuzz("--seconds", "0", "good"))
        self.assertEqual(len(process.stdout.splitlines()), 2)
        self.assertIn("-runs=0", self.calls_of("fuzz_good")[0])
        self.assertEqual(self.calls_of("fuzz_bad"), [])

    def test_fuzzing_refuses_targets_and_flags_that_are_none(self):
        for arguments in [["none"], ["--seconds"], ["--seconds", "x"], ["--second", "1"]]:
            with self.subTest(arguments):
                shutil.rmtree(self.project / "build", ignore_errors=True)
                process = self.fuzz(*arguments)
                self.assertEqual(process.returncode, 2)
                self.assertRegex(process.stderr, "error: .*expected .*, but got '")


if __name__ == "__main__":
    unittest.main()
