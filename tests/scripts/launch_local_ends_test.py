#!/usr/bin/env python3
"""How the workers of scripts/launch_local.sh end, and what it says and returns then."""

import os
import re
import signal
import sys
import time
import unittest

import launch_local_case

# Counts the signals until none has come for half a second.
COUNT_SIGNALS = """
    count = 0
    def handle(number, frame):
        global count
        count += 1
    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    print("ready", flush=True)
    while not count:
        time.sleep(0.01)
    time.sleep(0.5)
    print(count)
    """


class LaunchLocalEndsTest(launch_local_case.LaunchLocalCase):
    def summary(self, process):
        """The ends of the workers that were told, by rank."""
        found = re.findall(r"^launch_local\.sh: worker (\d+) \(pid \d+\) (.*)$", process.stderr, re.MULTILINE)
        return {int(rank): end for rank, end in found}

    def test_the_exit_code_is_that_of_the_worker_that_failed_first(self):
        process = self.launch(3, *self.shell("""
            case $LOCAL_RANK in
              0) while [ ! -e failed ]; do sleep 0.01; done; sleep 0.2; exit 4 ;;
              1) exit 0 ;;
              2) touch failed; exit 6 ;;
            esac
            """))
        self.assertEqual(process.returncode, 6)
        self.assertEqual(self.summary(process), {0: "exit code 4", 1: "exit code 0", 2: "exit code 6"})

    def test_a_worker_that_a_signal_kills_has_failed(self):
        process = self.launch(2, "sh", "-c", "[ $LOCAL_RANK = 0 ] || kill -KILL $$")
        self.assertEqual(process.returncode, 128 + signal.SIGKILL)
        self.assertEqual(self.summary(process), {0: "exit code 0", 1: "killed by SIGKILL"})

    def test_of_two_that_fail_at_once_the_one_that_lost_its_peer_is_not_the_first(self):
        process = self.start(2, *self.shell("""
            echo $$ >>ids
            while [ ! -e end ]; do sleep 0.01; done
            exit $((5 - LOCAL_RANK))
            """))
        workers = self.read_ids(2)
        # It finds both ended when it continues.
        process.send_signal(signal.SIGSTOP)
        (self.folder / "end").touch()
        self.expect_soon(lambda: not any(map(launch_local_case.is_running, workers)))
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(launch_local_case.TIMEOUT), 4)

    def test_after_a_failure_the_others_may_end_by_themselves(self):
        process = self.launch(2, *self.shell("""
            [ $LOCAL_RANK = 1 ] && exit 3
            trap 'echo terminated' TERM
            sleep 0.5; exit 5
            """))
        self.assertEqual((process.returncode, process.stdout), (3, ""))
        self.assertEqual(self.summary(process), {0: "exit code 5", 1: "exit code 3"})
        self.assertIn("launch_local.sh: worker 1 has failed, the others have 10 s to end\n", process.stderr)

    def test_after_the_grace_the_others_are_terminated_and_then_killed(self):
        start = time.monotonic()
        process = self.launch("--grace", "0.2", 3, *self.python("""
            def handle(number, frame):
                os.write(1, b"terminated\\n")
                if rank == 0:
                    os._exit(5)
            if rank == 1:
                wait_for("ready0"), wait_for("ready2")
                sys.exit(3)
            signal.signal(signal.SIGTERM, handle)
            (folder / f"ready{rank}").touch()
            while True:
                signal.pause()
            """))
        self.assertTrue(3.2 <= time.monotonic() - start < 8)
        self.assertEqual(process.returncode, 3)
        self.assertEqual(sorted(process.stdout.splitlines()), ["[0] terminated", "[2] terminated"])
        self.assertEqual(self.summary(process), {0: "exit code 5", 1: "exit code 3", 2: "killed by SIGKILL"})

    def test_a_worker_that_stays_stopped_is_killed_after_the_grace(self):
        # The others have ended, or wait for it.
        for others in ("exit 0", "while [ -d /proc/$(head -n 1 ids 2>/dev/null) ]; do sleep 0.1; done; exit 5"):
            with self.subTest(others):
                (self.folder / "ids").unlink(missing_ok=True)
                start = time.monotonic()
                process = self.launch("--grace", "0.5", 3, *self.shell(f"""
                    if [ $LOCAL_RANK != 1 ]; then while [ ! -e ids ]; do sleep 0.1; done; {others}; fi
                    echo $$ >>ids; kill -STOP $$
                    """))
                self.assertTrue(0.5 <= time.monotonic() - start < 8)
                self.assertEqual(process.returncode, 128 + signal.SIGKILL)
                self.assertEqual(self.summary(process)[1], "killed by SIGKILL")
                self.assertIn("launch_local.sh: worker 1 is stopped: it has 0.5 s to continue\n", process.stderr)
                self.assertIn("launch_local.sh: SIGKILL to worker 1, which is stopped\n", process.stderr)

    def test_a_worker_that_is_stopped_as_another_one_fails_is_killed_without_grace(self):
        start = time.monotonic()
        process = self.launch("--grace", "60", 2, *self.shell("""
            if [ $LOCAL_RANK = 0 ]; then
              until grep -q ') T ' /proc/$(head -n 1 ids 2>/dev/null)/stat 2>/dev/null; do sleep 0.1; done
              exit 5
            fi
            echo $$ >>ids; kill -STOP $$
            """))
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(process.returncode, 5)
        self.assertEqual(self.summary(process), {0: "exit code 5", 1: "killed by SIGKILL"})

    def test_one_that_goes_on_within_the_grace_has_all_the_time_it_needs(self):
        process = self.start("--grace", "1", 2, *self.shell(
            "[ $LOCAL_RANK = 1 ] || exit 0; echo $$ >>ids; kill -STOP $$; sleep 2; echo done"))
        self.assertIn("worker 1 is stopped: it has 1 s to continue", process.stderr.readline())
        os.kill(self.read_ids(1)[0], signal.SIGCONT)
        self.assertEqual(process.communicate(timeout=launch_local_case.TIMEOUT), ("[1] done\n", ""))
        self.assertEqual(process.returncode, 0)

    def test_all_of_a_job_may_stay_stopped(self):
        for count in (1, 2):
            with self.subTest(count):
                (self.folder / "ids").unlink(missing_ok=True)
                process = self.start("--grace", "0.5", count, *self.shell("echo $$ >>ids; kill -STOP $$; echo done"))
                workers = self.read_ids(count)
                for worker in workers:
                    self.expect_soon(lambda worker=worker: launch_local_case.state_of(worker) == "T")
                time.sleep(1.5)
                for worker in workers:
                    os.kill(worker, signal.SIGCONT)
                printed, _ = process.communicate(timeout=launch_local_case.TIMEOUT)
                self.assertEqual((process.returncode, sorted(printed.splitlines())), (0, [f"[{i}] done" for i in range(count)]))

    def test_what_a_worker_leaves_running_ends_with_it(self):
        self.expect_success(self.launch(2, *self.shell("sleep 60 & echo $! >>ids")))
        processes = self.read_ids(2)
        self.expect_soon(lambda: not any(map(launch_local_case.is_running, processes)))

    def test_a_terminals_signal_reaches_each_worker_once(self):
        process = self.start(2, *self.python(COUNT_SIGNALS))
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=launch_local_case.TIMEOUT)
        self.assertEqual((process.returncode, errors), (130, ""))
        self.assertEqual(sorted(printed.splitlines()), ["[0] 1", "[1] 1"])

    def test_sigterm_sent_twice_in_one_go_is_one(self):
        # As `timeout` does: to the launcher, and to its group.
        process = self.start(2, *self.python(COUNT_SIGNALS))
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)
        printed, errors = process.communicate(timeout=launch_local_case.TIMEOUT)
        self.assertEqual((process.returncode, errors), (143, ""))
        self.assertEqual(sorted(printed.splitlines()), ["[0] 1", "[1] 1"])

    def test_a_second_signal_kills(self):
        process = self.start(2, *self.python("""
            signal.signal(signal.SIGINT, lambda number, frame: os.write(1, b"still here\\n"))
            print("ready", flush=True)
            while True:
                signal.pause()
            """))
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        for _ in range(2):
            self.assertIn("still here", process.stdout.readline())
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=launch_local_case.TIMEOUT)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(errors.count("killed by SIGKILL"), 2)
        self.assertNotIn("has failed", errors)

    def test_no_grace_runs_while_workers_end_after_a_signal(self):
        process = self.start("--grace", "0.1", 2, *self.python("""
            received = []
            signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
            print("ready", flush=True)
            while not received:
                time.sleep(0.01)
            time.sleep(0.8 * rank)
            print("saved")
            sys.exit(143)
            """))
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        printed, errors = process.communicate(timeout=launch_local_case.TIMEOUT)
        self.assertEqual(process.returncode, 143)
        self.assertEqual(printed, "[0] saved\n[1] saved\n")
        self.assertNotIn("SIGTERM", errors)

    def test_workers_die_with_a_launcher_that_is_killed(self):
        process = self.start(3, *self.shell("echo $$ >>ids; exec sleep 60"))
        workers = self.read_ids(3)
        self.assertEqual([launch_local_case.is_running(worker) for worker in workers], [True] * 3)
        process.kill()
        self.expect_soon(lambda: not any(map(launch_local_case.is_running, workers)))


if __name__ == "__main__":
    sys.exit(unittest.main())
