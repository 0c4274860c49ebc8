#!/usr/bin/env python3
"""When scripts/launch_local.sh starts a job again, what the workers find then, and how it ends."""

import json
import os
import signal
import sys
import textwrap
import unittest

import launch_local_case

# Each worker leaves a record, and begins when it sees all of its generation's.
BEGIN = """
    generation, size = int(os.environ["LOCKSTEP_RESTART_COUNT"]), int(os.environ["LOCAL_WORLD_SIZE"])

    def record_of(rank):
        return folder / f"record-{generation}-{rank}"

    def wait_for_end(rank):
        # Until the launcher can see it: one that sees a connection end may be faster than that.
        process = json.loads(record_of(rank).read_text())["process"]
        while True:
            try:
                state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                return
            if state in "ZX":
                return
            time.sleep(0.01)

    def end_by(number):
        os.kill(os.getpid(), number)

    unfinished = folder / f"unfinished-{generation}-{rank}"
    unfinished.write_text(json.dumps({
        "process": os.getpid(), "environment": dict(os.environ), "address": "%s:%d" % own_socket().getsockname()}))
    unfinished.rename(record_of(rank))
    for other in range(size):
        wait_for(record_of(other).name)
    """


class LaunchLocalRestartsTest(launch_local_case.LaunchLocalCase):
    def worker(self, text):
        return self.python(textwrap.dedent(BEGIN) + textwrap.dedent(text))

    def generations(self):
        """The records that the workers of each generation left, by rank."""
        records = {}
        for path in self.folder.glob("record-*"):
            generation, rank = map(int, path.name.split("-")[1:])
            records.setdefault(generation, {})[rank] = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(sorted(records), list(range(len(records))))
        for workers in records.values():
            self.assertEqual(sorted(workers), list(range(len(workers))))
        return [[workers[rank] for rank in sorted(workers)] for _, workers in sorted(records.items())]

    def expect_nothing_left(self):
        processes = [record["process"] for workers in self.generations() for record in workers]
        self.assertEqual([process for process in processes if launch_local_case.is_running(process)], [])

    def said(self, errors):
        """Returns the messages about restarts."""
        lines = [line.removeprefix("launch_local.sh: ") for line in errors.splitlines()]
        return [line for line in lines if "again" in line or "generation" in line]

    def test_after_a_failure_all_workers_are_started_again(self):
        process = self.launch("--max-restarts", 3, 3, *self.worker("""
            failing = {0: 1, 1: 2}.get(generation)
            if rank == failing:
                end_by(signal.SIGKILL) if generation == 0 else sys.exit(7)
            if failing is not None:
                wait_for_end(failing)
                sys.exit(5)
            """))
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.said(process.stderr), [
            "worker 1 killed by SIGKILL: the job is started again as generation 1 of 3",
            "worker 2 exit code 7: the job is started again as generation 2 of 3",
        ])
        generations = self.generations()
        self.assertEqual([len(workers) for workers in generations], [3, 3, 3])
        self.expect_nothing_left()

        clusters = []
        for generation, workers in enumerate(generations):
            addresses = [worker["address"] for worker in workers]
            for rank, worker in enumerate(workers):
                environment = worker["environment"]
                self.assertEqual(environment["LOCKSTEP_RESTART_COUNT"], str(generation))
                self.assertEqual((environment["LOCAL_RANK"], environment["LOCAL_WORLD_SIZE"]), (str(rank), "3"))
                self.assertEqual(
                    json.loads(environment["TF_CONFIG"]),
                    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
            clusters.append(tuple(addresses))
        self.assertEqual(len(set(clusters)), 3, "the system chooses the ports of each generation")
        for name, pattern in [("LOCKSTEP_JOB_TOKEN", "^[0-9a-f]{64}$"), ("LOCKSTEP_JOB_ID", "^[0-9a-f]{32}$")]:
            values = {worker["environment"][name] for workers in generations for worker in workers}
            self.assertEqual(len(values), 1)
            self.assertRegex(values.pop(), pattern)

    def test_after_the_last_restart_the_exit_code_is_that_of_its_own_first_failure(self):
        process = self.launch("--max-restarts", 2, 2, *self.worker("""
            if rank == 1:
                sys.exit([1, 5, 7][generation])
            wait_for_end(1)
            sys.exit(5)
            """))
        self.assertEqual(process.returncode, 7)
        self.assertEqual([len(workers) for workers in self.generations()], [2, 2, 2])
        self.assertEqual(self.said(process.stderr)[-1], "worker 1 exit code 7: generation 2 of 2 was the last")
        self.assertRegex(process.stderr, r"worker 0 \(pid \d+\) exit code 5\n.*worker 1 \(pid \d+\) exit code 7\n$")
        self.assertEqual(process.stderr.count("(pid"), 2, "the last generation's workers alone are told of")

    def test_what_another_start_can_mend_and_what_it_cannot(self):
        end = "echo $LOCKSTEP_RESTART_COUNT >>generations; [ $LOCKSTEP_RESTART_COUNT = 1 ] || "
        mended = ["exit 1", "exit 5", "exit 7", "exit 137", "kill -KILL $$", "kill -TERM $$", "kill -ABRT $$"]
        lasting = ["exit 2", "exit 3", "exit 4", "exit 6", "exit 130", "exit 143"]
        for failure in ["exit 0", *mended, *lasting]:
            with self.subTest(failure=failure):
                path = self.folder / "generations"
                path.unlink(missing_ok=True)
                process = self.launch("--max-restarts", 3, 1, *self.shell("ulimit -c 0; " + end + failure))
                generations = path.read_text(encoding="utf-8").split()
                if failure in lasting:
                    code = failure.split()[1]
                    self.assertEqual((process.returncode, generations), (int(code), ["0"]))
                    self.assertEqual(
                        self.said(process.stderr), [f"worker 0 exit code {code}: the job is not started again"])
                else:
                    self.assertEqual(process.returncode, 0)
                    self.assertEqual(generations, ["0", "1"] if failure in mended else ["0"])

    def test_the_programs_retryable_exit_code_is_mended_even_if_others_mean_something_else_by_it(self):
        end = "echo $LOCKSTEP_RESTART_COUNT >>generations; [ $LOCKSTEP_RESTART_COUNT = 1 ] || exit 143"
        for given, mended in [(["--retryable-exit-code", "143"], True), (["--retryable-exit-code=143"], True),
                              (["--retryable-exit-code", "200"], False), ([], False)]:
            with self.subTest(given=given):
                path = self.folder / "generations"
                path.unlink(missing_ok=True)
                process = self.launch("--max-restarts", 3, 1, *self.shell(end), *given)
                self.assertEqual(process.returncode, 0 if mended else 143)
                self.assertEqual(path.read_text(encoding="utf-8").split(), ["0", "1"] if mended else ["0"])

    def test_the_exit_code_is_retryable_only_if_no_worker_failed_for_good(self):
        process = self.launch("--max-restarts", 3, 2, *self.worker("""
            if rank == 1:
                wait_for_end(0)
                sys.exit(3)
            sys.exit(200)
            """), "--retryable-exit-code", "200")
        self.assertEqual((process.returncode, len(self.generations())), (3, 1))
        process = self.launch(1, "sh", "-c", "exit 200", "--retryable-exit-code", "200")
        self.assertEqual(process.returncode, 200)

    def test_a_worker_that_saves_and_ends_retryably_at_a_signal_has_not_failed(self):
        process = self.start("--max-restarts", 3, 2, *self.worker("""
            signal.signal(signal.SIGTERM, lambda number, frame: os._exit(200))
            print("ready", flush=True)
            while True:
                signal.pause()
            """), "--retryable-exit-code", "200")
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        _, errors = self.expect_end_by(process, signal.SIGTERM)
        self.assertNotIn("has failed", errors)

    def test_without_restarts_nothing_is_said_of_them(self):
        for arguments in [[], ["--max-restarts=0"]]:
            process = self.launch(*arguments, 1, "sh", "-c", "exit 5")
            self.assertEqual((process.returncode, self.said(process.stderr)), (5, []))

    def test_a_failure_that_lasts_decides_where_others_only_lost_their_peer(self):
        process = self.launch("--max-restarts", 3, 2, *self.worker("""
            if rank == 1:
                wait_for_end(0)
                sys.exit(3)
            sys.exit(5)
            """))
        self.assertEqual(len(self.generations()), 1)
        self.assertEqual(process.returncode, 5)
        self.assertEqual(self.said(process.stderr), ["worker 1 exit code 3: the job is not started again"])

    def test_workers_that_do_not_end_are_terminated_and_killed_and_keep_their_places(self):
        process = self.launch("--max-restarts", 1, "--min-workers", 1, "--grace", "0.1", 4, *self.worker("""
            def terminated(number, frame):
                if rank == 1:
                    os._exit(143)
            if generation == 0:
                if rank == 0:
                    wait_for("ready-1"), wait_for("ready-2"), wait_for("ready-3")
                    sys.exit(1)
                if rank != 3:
                    signal.signal(signal.SIGTERM, terminated)
                (folder / f"ready-{rank}").touch()
                while True:
                    signal.pause()
            """))
        self.assertEqual(process.returncode, 0)
        self.assertIn("launch_local.sh: SIGTERM to the workers that have not ended (3)\n", process.stderr)
        self.assertIn("launch_local.sh: SIGKILL to the workers that have not ended (", process.stderr)
        self.assertEqual([len(workers) for workers in self.generations()], [4, 4])
        self.assertEqual(
            self.said(process.stderr), ["worker 0 exit code 1: the job is started again as generation 1 of 1"])
        self.expect_nothing_left()

    def test_for_each_worker_that_was_killed_the_next_start_may_have_one_less(self):
        process = self.launch("--max-restarts", 4, "--min-workers", 2, 5, *self.worker("""
            import resource
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if (generation, rank) in [(0, 1), (0, 4), (2, 0), (2, 1)]:
                end_by(signal.SIGKILL)
            if (generation, rank) == (1, 2):
                end_by(signal.SIGABRT)
            if (generation, rank) == (3, 1):
                sys.exit(1)
            if generation < 4:
                wait_for_end({0: 1, 1: 2, 2: 0, 3: 1}[generation])
                sys.exit(5)
            """))
        self.assertEqual(process.returncode, 0)
        generations = self.generations()
        # Two of five are lost; a worker that crashes keeps its place; of three one is left, which is too few.
        self.assertEqual([len(workers) for workers in generations], [5, 3, 3, 2, 2])
        for workers in generations:
            for worker in workers:
                self.assertEqual(worker["environment"]["LOCAL_WORLD_SIZE"], str(len(workers)))
                self.assertEqual(
                    json.loads(worker["environment"]["TF_CONFIG"])["cluster"],
                    {"worker": [other["address"] for other in workers]})
        lines = self.said(process.stderr)
        # Either of two that were killed may be first.
        self.assertRegex(
            lines[0], "^worker [14] killed by SIGKILL: the job is started again as generation 1 of 4, with 3 of 5 workers$")
        self.assertEqual(
            lines[1], "worker 2 killed by SIGABRT: the job is started again as generation 2 of 4, with 3 of 5 workers")
        self.assertRegex(
            lines[2], "^worker [01] killed by SIGKILL: the job is started again as generation 3 of 4, with 2 of 5 workers$")
        self.assertEqual(
            lines[3:], ["worker 1 exit code 1: the job is started again as generation 4 of 4, with 2 of 5 workers"])
        self.expect_nothing_left()

    def test_without_least_workers_each_start_has_all(self):
        process = self.launch("--max-restarts", 1, 2, *self.worker("""
            if generation == 0:
                end_by(signal.SIGKILL)
            """))
        self.assertEqual(process.returncode, 0)
        self.assertEqual([len(workers) for workers in self.generations()], [2, 2])

    def test_files_hold_what_all_generations_wrote(self):
        (self.folder / "worker-0.out").write_text("what an earlier job wrote", encoding="utf-8")
        process = self.launch("--max-restarts=2", "--output", self.folder, 1, "sh", "-c", """
            echo out $LOCKSTEP_RESTART_COUNT; echo error $LOCKSTEP_RESTART_COUNT >&2; exit $((LOCKSTEP_RESTART_COUNT < 2))
            """)
        self.assertEqual((process.returncode, process.stdout), (0, "[0] out 0\n[0] out 1\n[0] out 2\n"))
        for end, word in [("out", "out"), ("err", "error")]:
            self.assertEqual(
                (self.folder / f"worker-0.{end}").read_text(encoding="utf-8"), f"{word} 0\n{word} 1\n{word} 2\n")

    def test_a_program_that_cannot_be_started_any_more_ends_the_job(self):
        program = self.folder / "program"
        program.write_text('#!/bin/sh\nrm "$0"\nexit 1\n', encoding="utf-8")
        program.chmod(0o755)
        process = self.launch("--max-restarts", 3, 1, program)
        self.assertEqual(process.returncode, 7)
        self.assertEqual(len(self.said(process.stderr)), 1)
        self.assertRegex(process.stderr, f"launch_local.sh: program: cannot start '{program}' as worker 0: [^\n]*\n$")

    # Signals to the launcher

    def expect_end_by(self, process, number):
        printed, errors = process.communicate(timeout=launch_local_case.TIMEOUT)
        self.assertEqual(process.returncode, 128 + number)
        self.assertEqual(len(self.generations()), 1)
        self.expect_nothing_left()
        return printed, errors

    def test_a_signal_ends_the_workers_and_starts_nothing_again(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            with self.subTest(number=number.name):
                process = self.start("--max-restarts", 3, 2, *self.worker("""
                    def end(number, frame):
                        os.write(1, f"{number}\\n".encode())
                        os._exit(1)  # which would be mended
                    signal.signal(signal.SIGINT, end)
                    signal.signal(signal.SIGTERM, end)
                    print("ready", flush=True)
                    while True:
                        signal.pause()
                    """))
                for _ in range(2):
                    self.assertIn("ready", process.stdout.readline())
                process.send_signal(number)
                printed, errors = self.expect_end_by(process, number)
                self.assertEqual(sorted(printed.splitlines()), [f"[0] {int(number)}", f"[1] {int(number)}"])
                self.assertEqual(self.said(errors), [])
                for record in self.folder.glob("record-*"):
                    record.unlink()

    def test_a_signal_while_the_others_are_to_end_starts_nothing_again(self):
        process = self.start("--max-restarts", 3, 2, *self.worker("""
            if rank == 1:
                wait_for("ready")
                sys.exit(1)
            def end(number, frame):
                os.write(1, b"terminated\\n")
                os._exit(5)
            signal.signal(signal.SIGTERM, end)
            (folder / "ready").touch()
            while True:
                signal.pause()
            """))
        self.assertIn("worker 1 has failed", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        printed, errors = self.expect_end_by(process, signal.SIGTERM)
        self.assertEqual((printed, self.said(errors)), ("[0] terminated\n", []))

    def test_a_signal_between_two_generations_starts_nothing_again(self):
        # It continues when all has been printed, which nobody reads.
        process = self.start("--max-restarts", 3, 1, *self.worker("""
            print("x" * 500000)
            sys.exit(1)
            """))
        self.expect_soon((self.folder / "record-0-0").exists)
        worker = self.generations()[0][0]["process"]
        self.expect_soon(lambda: not os.path.exists(f"/proc/{worker}"))
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        _, errors = self.expect_end_by(process, signal.SIGTERM)
        # Workers that had been started and then ended at once would be told of, before they left a record.
        self.assertNotIn("(pid", errors)

    def test_workers_of_a_later_generation_die_with_a_launcher_that_is_killed(self):
        process = self.start("--max-restarts", 1, 2, *self.worker("""
            if generation == 0:
                sys.exit(1)
            while True:
                signal.pause()
            """))
        self.expect_soon((self.folder / "record-1-0").exists)
        self.expect_soon((self.folder / "record-1-1").exists)
        workers = [record["process"] for record in self.generations()[1]]
        self.assertEqual([launch_local_case.is_running(worker) for worker in workers], [True, True])
        process.kill()
        self.expect_soon(lambda: not any(map(launch_local_case.is_running, workers)))


if __name__ == "__main__":
    sys.exit(unittest.main())
