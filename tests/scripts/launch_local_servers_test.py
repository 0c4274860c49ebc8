#!/usr/bin/env python3
"""Jobs of parameter servers under scripts/launch_local.sh: what their processes are given, and who is started again."""

import json
import signal
import sys
import textwrap
import unittest

import launch_local_case

# Each process leaves a record at each of its starts, and continues once all of the first ones are there.
BEGIN = """
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    job, index = task["type"], task["index"]
    name = f"{job}-{index}"
    start = len(list(folder.glob(f"{name}-start-*")))
    own = own_socket()
    unfinished = folder / f"unfinished-{name}"
    unfinished.write_text(json.dumps({"process": os.getpid(), "environment": dict(os.environ),
                                      "address": "%s:%d" % own.getsockname(),
                                      "reuses": own.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)}))
    unfinished.rename(folder / f"{name}-start-{start}")
    """


class LaunchLocalServersTest(launch_local_case.LaunchLocalCase):
    def program(self, text):
        return self.python(textwrap.dedent(BEGIN) + textwrap.dedent(text))

    def launch_job(self, text, *arguments, servers=2, workers=2):
        return self.launch("--ps", servers, "--workers", workers, *arguments, *self.program(text))

    def record(self, name, start=0):
        return json.loads((self.folder / f"{name}-start-{start}").read_text(encoding="utf-8"))

    def starts(self, name):
        return len(list(self.folder.glob(f"{name}-start-*")))

    def test_each_process_has_its_task_and_the_socket_of_its_port(self):
        process = self.launch_job("")
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        names = ["chief-0", "worker-0", "worker-1", "ps-0", "ps-1"]
        records = [self.record(name) for name in names]
        addresses = [record["address"] for record in records]
        self.assertEqual(len(set(addresses)), 5)
        cluster = {"chief": addresses[:1], "worker": addresses[1:3], "ps": addresses[3:]}
        for rank, (name, record) in enumerate(zip(names, records)):
            job, index = name.split("-")
            self.assertEqual(json.loads(record["environment"]["TF_CONFIG"]),
                             {"cluster": cluster, "task": {"type": job, "index": int(index)}})
            self.assertEqual(record["environment"]["LOCAL_RANK"], str(rank))
            # Connections that a killed server leaves behind keep nobody from its port.
            self.assertEqual(record["reuses"], int(job == "ps"))
        self.assertEqual(len({record["environment"]["LOCKSTEP_JOB_TOKEN"] for record in records}), 1)

    def test_lines_and_files_have_the_names_of_their_processes(self):
        logs = self.folder / "logs"
        process = self.launch_job('print("here is", name)', "--output", logs)
        for prefix, name in (("chief", "chief-0"), ("worker 1", "worker-1"), ("ps 0", "ps-0")):
            self.assertIn(f"[{prefix}] here is {name}\n", process.stdout)
        self.assertEqual(sorted(path.name for path in logs.iterdir()),
                         sorted(f"{name}.{end}" for name in ("chief", "worker-0", "worker-1", "ps-0", "ps-1")
                                for end in ("err", "out")))
        self.assertEqual((logs / "ps-1.out").read_text(encoding="utf-8"), "here is ps-1\n")
        quiet = self.launch_job('print("here is", name)', "--quiet")
        self.assertEqual(quiet.stdout, "[chief] here is chief-0\n")

    def test_a_job_goes_on_without_a_worker_that_has_failed(self):
        process = self.launch_job("""
            if name == "worker-1":
                os.kill(os.getpid(), signal.SIGKILL)
            if job == "chief":
                wait_for("worker-1-start-0")
                time.sleep(0.3)
                (folder / "done").touch()
            wait_for("done")
            """)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("worker 1 killed by SIGKILL: the job continues without it", process.stderr)
        self.assertEqual(self.starts("worker-1"), 1)

    def test_workers_and_servers_are_started_again_by_themselves_at_their_address(self):
        process = self.launch_job("""
            if name in ("worker-1", "ps-0") and start == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if job == "chief":
                wait_for("worker-1-start-1")
                wait_for("ps-0-start-1")
                (folder / "done").touch()
            wait_for("done")
            print("continues", start)
            """, "--max-restarts", 2)
        self.assertEqual(process.returncode, 0, process.stderr)
        for name in ("worker 1", "ps 0"):
            self.assertRegex(process.stderr, f"{name} killed by SIGKILL: it is started again, restart [12] of 2")
            self.assertIn(f"[{name}] continues 1\n", process.stdout)
        for name in ("worker-1", "ps-0"):
            first, second = self.record(name, 0), self.record(name, 1)
            self.assertEqual(first["address"], second["address"])
            self.assertEqual(first["environment"]["TF_CONFIG"], second["environment"]["TF_CONFIG"])
        for name in ("chief-0", "worker-0", "ps-1"):
            self.assertEqual(self.starts(name), 1)

    def test_what_another_start_would_not_mend_is_not_started_again(self):
        process = self.launch_job("""
            if name == "worker-0":
                sys.exit(3)
            if job == "chief":
                wait_for("worker-0-start-0")
                time.sleep(0.3)
                (folder / "done").touch()
            wait_for("done")
            """, "--max-restarts", 2)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("worker 0 exit code 3: the job continues without it", process.stderr)
        self.assertEqual(self.starts("worker-0"), 1)

    def test_a_server_that_fails_for_good_ends_the_job(self):
        process = self.launch_job("""
            if name == "ps-1":
                sys.exit(7)
            time.sleep(60)
            """, "--grace", 0.2)
        self.assertEqual(process.returncode, 7, process.stderr)
        self.assertIn("ps 1 has failed, the others have 0.2 s to end", process.stderr)

    def test_the_chiefs_failure_starts_all_of_them_again(self):
        process = self.launch_job("""
            if job == "chief" and start == 0:
                wait_for("ps-1-start-0")
                sys.exit(5)
            if job == "chief":
                (folder / "done").touch()
            wait_for("done")
            """, "--max-restarts", 1, "--grace", 0.2)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("chief exit code 5: the job is started again as generation 1 of 1", process.stderr)
        for name in ("chief-0", "worker-0", "worker-1", "ps-0", "ps-1"):
            self.assertEqual(self.starts(name), 2)
            self.assertEqual(self.record(name, 1)["environment"]["LOCKSTEP_RESTART_COUNT"], "1")

    def test_restarts_are_counted_together(self):
        process = self.launch_job("""
            if name == "worker-0":
                os.kill(os.getpid(), signal.SIGKILL)
            if job == "chief":
                wait_for("worker-0-start-2")
                time.sleep(0.3)
                sys.exit(5)
            time.sleep(60)
            """, "--max-restarts", 2, "--grace", 0.2)
        self.assertEqual(process.returncode, 5, process.stderr)
        self.assertIn("restart 2 of 2", process.stderr)
        self.assertIn("worker 0 killed by SIGKILL: the job continues without it", process.stderr)
        self.assertIn("chief exit code 5: restart 2 of 2 was the last", process.stderr)

    def test_who_does_not_end_after_the_chief_is_made_to(self):
        process = self.launch_job("""
            if job != "chief":
                time.sleep(60)
            """, "--grace", 0.2)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("SIGTERM to the workers that have not ended (4)", process.stderr)

    def test_a_signal_reaches_all_and_nothing_is_started_again(self):
        process = self.start("--ps", 1, "--workers", 1, "--max-restarts", 5, *self.program("time.sleep(60)"))
        for name in ("chief-0", "worker-0", "ps-0"):
            self.expect_soon((self.folder / f"{name}-start-0").exists)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=launch_local_case.TIMEOUT)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)
        self.assertEqual([self.starts(name) for name in ("chief-0", "worker-0", "ps-0")], [1, 1, 1])

    def test_refuses_counts_that_do_not_go_together(self):
        for arguments, expected in (
                (["--ps", 0, "--workers", 1, "true"], "--ps: expected a number of parameter servers from 1 to 1024, but got '0'"),
                (["--ps", 1, "true"], "--ps, --workers: expected both of them or neither"),
                (["--workers", 1, "true"], "--ps, --workers: expected both of them or neither"),
                (["--ps", 1, "--workers", 1, "--chief", "true"], "--chief: expected it without --ps"),
                (["--ps", 1, "--workers", 1, "--max-restarts", 1, "--min-workers", 1, "true"],
                 "--min-workers: expected it without --ps"),
                (["--ps", 1, "--workers", 1], "program: expected a program to run, but got none"),
                (["--ps", 1, "--workers", 1, "/nowhere"], "'/nowhere' does not exist")):
            process = self.launch(*arguments)
            self.assertEqual(process.returncode, 2)
            self.assertIn(expected, process.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
