#!/usr/bin/env python3
"""Checks the job files in docs/recipes/, and that docs/recipes.md shows them as they are.

TRAIN_IMAGES and TRAIN_CTR name the programs whose flags the recipes use.
"""

import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGE = SOURCE / "docs" / "recipes.md"
RECIPES = SOURCE / "docs" / "recipes"
PROGRAMS = {"train_images": "TRAIN_IMAGES", "train_ctr": "TRAIN_CTR"}

sys.path.insert(0, str(SOURCE / "scripts"))
from launch_local_restarts import LASTING

needs_yaml = unittest.skipUnless(yaml, "needs Python's yaml (Debian's python3-yaml)")


def recipes(*suffixes):
    return sorted(path for path in RECIPES.iterdir() if path.suffix in suffixes)


def needs_program(name):
    return unittest.skipUnless(shutil.which(name), f"needs {name}")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


@functools.cache
def flags_of(executable):
    return frozenset(re.findall(r"--[\w-]+", run(executable, "--help").stdout))


def documents(path):
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def containers(value):
    """The containers anywhere in a YAML document."""
    if isinstance(value, dict):
        yield from value.get("containers", [])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from containers(item)


def commands(path):
    """The command lines of Lockstep's programs in a recipe: [program, argument...]."""
    if path.suffix == ".yaml":
        return [container["command"] for document in documents(path) for container in containers(document)]
    found = []
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        program = re.search(rf"(?:^|[ =/])({'|'.join(PROGRAMS)})(?= )", line.partition("#")[0])
        if program:
            found.append(shlex.split(line[program.start(1):].partition("||")[0]))
    return found


class PageTest(unittest.TestCase):
    def test_the_page_shows_every_recipe_as_it_is(self):
        text = PAGE.read_text(encoding="utf-8")
        shown = re.findall(r"^\[recipes/([\w.-]+)\]\(recipes/\1\)[^\n]*\n\n```\w+\n(.*?)^```$", text,
                           re.MULTILINE | re.DOTALL)
        self.assertEqual(sorted(name for name, _ in shown), [path.name for path in recipes(".sh", ".yaml", ".service")])
        self.assertEqual(len(list(RECIPES.iterdir())), len(shown))
        for name, block in shown:
            with self.subTest(name):
                self.assertEqual(block, (RECIPES / name).read_text(encoding="utf-8"))


class TokensTest(unittest.TestCase):
    def test_recipes_of_several_processes_give_them_a_token(self):
        of_several = [path for path in recipes(".sh", ".yaml", ".service")
                      if re.search(r"--strategy[= ](multi_worker|parameter_server)", path.read_text(encoding="utf-8"))]
        self.assertEqual([path.name for path in of_several], ["kubeflow_pytorchjob.yaml", "kubeflow_tfjob.yaml", "slurm.sh"])
        for path in of_several:
            self.assertIn("LOCKSTEP_JOB_TOKEN", path.read_text(encoding="utf-8"), path.name)


class FlagsTest(unittest.TestCase):
    def check(self, *suffixes):
        for path in recipes(*suffixes):
            found = commands(path)
            self.assertTrue(found, f"{path.name} starts none of {', '.join(PROGRAMS)}")
            for program, *arguments in found:
                with self.subTest(path.name):
                    executable = os.environ.get(PROGRAMS[program])
                    if not executable:
                        self.skipTest(f"needs {PROGRAMS[program]}")
                    used = {word.partition("=")[0] for word in arguments if word.startswith("--")}
                    self.assertIn("--backup-dir", used)
                    self.assertEqual(used - flags_of(executable), set(), f"not in {program} --help")

    def test_programs_have_the_flags_of_scripts_and_units(self):
        self.check(".sh", ".service")

    @needs_yaml
    def test_programs_have_the_flags_of_jobs(self):
        self.check(".yaml")


class ScriptsTest(unittest.TestCase):
    def test_bash_reads_the_scripts(self):
        for path in recipes(".sh"):
            result = run("bash", "-n", path)
            self.assertEqual(result.returncode, 0, result.stderr)

    @needs_program("shellcheck")
    def test_shellcheck_finds_nothing(self):
        result = run("shellcheck", *recipes(".sh"))
        self.assertEqual(result.returncode, 0, result.stdout)

    def run_slurm(self, exit_code, restarts=0):
        """Runs slurm.sh where srun ends with `exit_code`. Returns its own exit code and what scontrol was told."""
        with tempfile.TemporaryDirectory() as folder:
            told = pathlib.Path(folder, "told")
            for name, body in {"srun": f"exit {exit_code}", "scontrol": f'echo "$*" >> {told}',
                               "openssl": "echo token"}.items():
                stub = pathlib.Path(folder, name)
                stub.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
                stub.chmod(0o755)
            environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": folder, "SLURM_JOB_ID": "42",
                           "SLURM_RESTART_COUNT": str(restarts), "MAX_RESTARTS": "3"}
            result = run("bash", RECIPES / "slurm.sh", env=environment)
            return result.returncode, told.read_text(encoding="utf-8") if told.exists() else ""

    def test_slurm_queues_a_job_again_only_if_a_restart_may_mend_it(self):
        self.assertEqual(self.run_slurm(0), (0, ""))
        for code in (1, 5, 7, 137, 143):
            self.assertEqual(self.run_slurm(code), (0, "requeue 42\n"), code)
            self.assertEqual(self.run_slurm(code, restarts=2), (0, "requeue 42\n"), code)
            self.assertEqual(self.run_slurm(code, restarts=3), (code, ""), code)
        for code in sorted(LASTING):
            self.assertEqual(self.run_slurm(code), (code, ""), code)


class UnitsTest(unittest.TestCase):
    def test_systemd_does_not_restart_what_a_restart_cannot_mend(self):
        for path in recipes(".service"):
            codes = re.search(r"^RestartPreventExitStatus=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            self.assertEqual({int(code) for code in codes[1].split()}, LASTING)

    @needs_program("systemd-analyze")
    def test_systemd_accepts_the_units(self):
        for path in recipes(".service"):
            with tempfile.TemporaryDirectory() as folder:
                # The program is not installed here, and systemd looks for it.
                text, count = re.subn(r"^ExecStart=\S+", "ExecStart=/bin/true", path.read_text(encoding="utf-8"),
                                      flags=re.MULTILINE)
                self.assertEqual(count, 1)
                unit = pathlib.Path(folder, path.name)
                unit.write_text(text, encoding="utf-8")
                result = run("systemd-analyze", "verify", "--man=no", unit)
                about = [line for line in result.stderr.splitlines() if path.name in line]
                self.assertEqual((about, result.returncode), ([], 0), result.stderr)


@needs_yaml
class JobsTest(unittest.TestCase):
    def test_every_document_is_an_object_of_kubernetes(self):
        for path in recipes(".yaml"):
            for document in documents(path):
                with self.subTest(path.name):
                    self.assertLessEqual({"apiVersion", "kind", "metadata", "spec"}, set(document))

    def test_a_job_fails_after_the_exit_codes_that_a_restart_cannot_mend(self):
        (job,) = [document for document in documents(RECIPES / "kubernetes_job.yaml") if document["kind"] == "Job"]
        rules = {rule["action"]: rule for rule in job["spec"]["podFailurePolicy"]["rules"]}
        self.assertEqual(set(rules["FailJob"]["onExitCodes"]["values"]), LASTING)
        self.assertEqual(job["spec"]["template"]["spec"]["restartPolicy"], "Never")

    def test_kubeflow_restarts_failures_that_a_restart_may_mend(self):
        for name, replicas, container in (("kubeflow_pytorchjob.yaml", "pytorchReplicaSpecs", "pytorch"),
                                          ("kubeflow_tfjob.yaml", "tfReplicaSpecs", "tensorflow")):
            (job,) = documents(RECIPES / name)
            for replica in job["spec"][replicas].values():
                self.assertEqual(replica["restartPolicy"], "ExitCode")
                (only,) = replica["template"]["spec"]["containers"]
                self.assertEqual(only["name"], container)
                code = re.search(r"--retryable-exit-code=(\d+)", " ".join(only["command"]))
                self.assertTrue(128 <= int(code[1]) <= 255)

    def test_every_volume_that_is_mounted_is_there(self):
        for path in recipes(".yaml"):
            text = path.read_text(encoding="utf-8")
            mounted = set(re.findall(r"- \{name: ([\w-]+), mountPath:", text))
            volumes = set(re.findall(r"^ +- name: ([\w-]+)[^\n]*\n +persistentVolumeClaim:", text, re.MULTILINE))
            self.assertTrue(mounted)
            self.assertEqual(mounted, volumes, path.name)


if __name__ == "__main__":
    unittest.main()
