#!/usr/bin/env python3
"""train_ctr by parameter servers: whole jobs, whose processes are killed, stopped, and started again."""

import json
import re
import signal
import time
import unittest

import train_ctr_case

WORK = ["--train-rows", 60000, "--test-rows", 10000, "--global-batch-size", 256, "--table-rows", 20000, "--log-every", 20]
KILL, STOP, CONTINUE = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT


class ServersTest(train_ctr_case.TrainCtrCase):
    def auc(self, text):
        return self.number(r"test +AUC (\S+),", text)

    def checkpoint_steps(self, backup):
        return [json.loads((path / "manifest.json").read_text(encoding="utf-8"))["step"]
                for path in sorted(backup.glob("checkpoint-*"))]

    def newest_checkpoint(self, backup):
        """The step of the newest checkpoint that is whole, while others are written and removed."""
        for path in sorted(backup.glob("checkpoint-*"), reverse=True):
            try:
                return json.loads((path / "manifest.json").read_text(encoding="utf-8"))["step"]
            except FileNotFoundError:
                continue
        return 0

    def test_steps_that_workers_make_together_are_those_of_one_process(self):
        common = [*WORK, "--steps", 60, "--precision", "float64"]
        alone = self.run_alone(*common, "--threads", 1)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        losses = re.compile(r"step \d+/60  loss \S+")
        for workers in (1, 3):
            text = self.expect_end(self.start_job(*common, "--max-staleness", 0, workers=workers))
            self.assertEqual(losses.findall(text), losses.findall(alone.stdout))
            self.assertEqual(self.auc(text), self.auc(alone.stdout))
            self.assertRegex(text, r"staleness +0\.00 on average, 0 at most")

    def test_workers_that_step_by_themselves_tell_staleness_and_speed(self):
        text = self.expect_end(self.start_job(*WORK, "--steps", 300))
        self.assertGreater(self.auc(text), 0.8)
        self.assertRegex(text, r"updates +300 applied, 0 repeats ignored, 0 dropped as a server had lost their values")
        counts = re.findall(r"^\[chief\] +[\d-]+  #+ +([\d,]+)$", text, re.MULTILINE)
        self.assertEqual(sum(int(count.replace(",", "")) for count in counts), 300)
        self.assertGreater(self.number(r"rows/s +([\d,]+)", text), 0)
        bounded = self.expect_end(self.start_job(*WORK, "--steps", 100, "--max-staleness", 1))
        self.assertLessEqual(self.number(r"on average, (\d+) at most", bounded), 1)

    def test_killed_workers_and_servers_that_come_back_cost_no_more_than_what_was_not_saved(self):
        backup = self.folder / "backup"
        job = self.start_job(*WORK, "--steps", 1200, "--backup-dir", backup, "--save-every", "50 steps",
                             launcher=["--max-restarts", 5])
        job.wait_for(r"step 200/1200")
        job.send("worker", 1, KILL)
        job.wait_for("worker 1 is lost")
        job.wait_for(r"step 500/1200")
        saved = self.newest_checkpoint(backup)
        job.send("ps", 0, KILL)
        job.wait_for(r"\[ps 0\] train_ctr: ps 0 serves at .*, from checkpoint-")
        text = self.expect_end(job)
        self.assertIn("worker 1 killed by SIGKILL: it is started again", text)
        # Only updates that were on their way are dropped.
        self.assertLess(self.number(r"repeats ignored, ([\d,]+) dropped as a server", text), 30)
        restored = re.search(r"ps 0 serves at .*, from checkpoint-0*(\d+)", text)
        # How many steps go by while a checkpoint is written depends on the disk; one that was whole is not passed over.
        self.assertGreaterEqual(int(restored.group(1)), saved)
        self.assertGreater(self.auc(text), 0.8)
        self.assertEqual(self.checkpoint_steps(backup)[-1], 1200)

    def test_a_worker_that_was_stopped_disturbs_nobody(self):
        job = self.start_job(*WORK, "--steps", 1500)
        job.wait_for(r"step 100/1500")
        job.send("worker", 0, STOP)
        job.wait_for("worker 0 is lost")
        job.send("worker", 0, CONTINUE)
        text = self.expect_end(job)
        # Another worker repeated its work: each update counts once.
        self.assertRegex(text, r"updates +1,[45]\d\d applied, ")
        self.assertGreater(self.auc(text), 0.8)

    def test_a_server_that_was_stopped_holds_all_up_and_loses_nothing(self):
        job = self.start_job(*WORK, "--steps", 600)
        job.wait_for(r"step 100/600")
        job.send("ps", 1, STOP)
        time.sleep(1)
        told = job.text().count("step ")
        time.sleep(1.5)
        self.assertLessEqual(job.text().count("step "), told + 1)
        job.send("ps", 1, CONTINUE)
        text = self.expect_end(job)
        self.assertRegex(text, r"updates +600 applied, 0 repeats ignored, 0 dropped as a server had lost their values")

    def test_a_job_that_is_asked_to_end_saves_and_goes_on_where_it_was(self):
        for staleness in ([], ["--max-staleness", 0]):
            backup = self.folder / f"backup{len(staleness)}"
            arguments = [*WORK, "--steps", 300, "--backup-dir", backup, "--save-every", "1000 steps", *staleness]
            job = self.start_job(*arguments)
            job.wait_for(r"step 60/300")
            job.process.send_signal(signal.SIGTERM)
            text = self.expect_end(job, 128 + signal.SIGTERM)
            self.assertIn(f"saved in {backup}; to resume, run: ", text)
            steps = self.checkpoint_steps(backup)[-1]
            self.assertIn(f"stopped by SIGTERM after step {steps}\n", text)
            rest = self.expect_end(self.start_job(*arguments, servers=3))
            self.assertIn(f"300 of 256 rows, from step {steps} on", rest)
            self.assertGreater(self.auc(rest), 0.75)

    def test_a_worker_that_is_asked_to_end_leaves_after_its_step(self):
        job = self.start_job(*WORK, "--steps", 600)
        job.wait_for(r"step 100/600")
        job.send("worker", 1, signal.SIGTERM)
        job.wait_for("worker 1 has left")
        text = self.expect_end(job)
        self.assertIn("worker 1 exit code 143: the job continues without it", text)
        self.assertRegex(text, r"updates +600 applied, 0 repeats ignored")
        self.assertRegex(text, r"; 0 lost")

    def test_who_is_missing_at_the_start_is_named(self):
        config = {"cluster": {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]},
                  "task": {"type": "worker", "index": 0}}
        job = train_ctr_case.Job([train_ctr_case.PROGRAM, "--strategy", "parameter_server"],
                                 {"TF_CONFIG": json.dumps(config), "LOCKSTEP_JOIN_TIMEOUT": "1",
                                  "XDG_RUNTIME_DIR": str(self.folder)})
        self.addCleanup(job.kill)
        self.assertIn("ps 0 (127.0.0.1:3): expected it to answer within 1 s", self.expect_end(job, 5))

    def test_servers_that_are_lost_for_good_end_the_job(self):
        job = self.start_job(*WORK, "--steps", 100000, launcher=["--grace", 30], LOCKSTEP_JOIN_TIMEOUT="3")
        job.wait_for(r"step 100/")
        job.send("ps", 1, KILL)
        text = self.expect_end(job, 128 + KILL)
        self.assertRegex(text, r"\[chief\] train_ctr: error: .*ps 1 \(127\.0\.0\.1:\d+\)")

    def test_rows_on_disk_train_as_those_in_memory(self):
        common = [argument for argument in WORK if argument not in ("--table-rows", 20000)]
        common += ["--model", "dlrm", "--embedding-dim", 64, "--max-staleness", 0]
        first = [*common, "--steps", 230]
        known = self.expect_end(self.start_job(*first, "--table-memory", "unlimited"))
        disk, backup = self.folder / "rows", self.folder / "backup"
        on_disk = ["--table-memory", "24MiB", "--table-disk", disk, "--backup-dir", backup]
        job = self.start_job(*first, *on_disk)
        if job.wait() != 0 and "librocksdb-dev" in job.text():
            self.skipTest("built without RocksDB")
        text = self.expect_end(job)
        self.assertRegex(text, r"table disk +" + re.escape(str(disk)))
        losses = re.compile(r"step \d+/230  loss \S+")
        self.assertEqual(losses.findall(text), losses.findall(known))
        self.assertEqual(self.auc(text), self.auc(known))
        self.assertEqual(sorted(path.name for path in disk.iterdir()), ["ps-0", "ps-1"])
        self.assertEqual([path.name for path in disk.glob("ps-*/lockstep-rows-*")], [])
        # The rows of two servers are those of one, which takes them from the checkpoint.
        rest = self.expect_end(self.start_job(*common, *on_disk, "--steps", 234, servers=1))
        self.assertIn("from step 230 on", rest)

    def test_rows_that_are_rare_can_be_left_alone(self):
        text = self.expect_end(self.start_job(*WORK, "--steps", 100, "--min-frequency", 5, "--steps-to-live", 50))
        self.assertIn("row filter       from update 5 on, forgotten after 50 steps without", text)
        self.assertGreater(self.auc(text), 0.6)

    def test_tables_that_grow_are_as_good_as_those_of_all_rows(self):
        common = ["--train-rows", 200000, "--test-rows", 40000, "--global-batch-size", 256, "--log-every", 100,
                  "--steps", 780, "--max-staleness", 0]
        known = self.auc(self.expect_end(self.start_job(*common, "--table-rows", 2000000)))
        text = self.expect_end(self.start_job(*common, "--table-memory", "64MiB"))
        self.assertRegex(text, r"table memory +64MiB, of all servers together")
        self.assertGreater(self.auc(text), known - 0.002)

    def test_tables_that_grow_come_back_with_servers_that_were_killed_and_on_others(self):
        backup = self.folder / "backup"
        growing = [argument for argument in WORK if argument not in ("--table-rows", 20000)]
        growing += ["--table-memory", "4MiB", "--min-frequency", 2, "--steps-to-live", 500, "--backup-dir", backup,
                    "--save-every", "50 steps"]
        job = self.start_job(*growing, "--steps", 600, launcher=["--max-restarts", 5])
        job.wait_for(r"step 300/600")
        job.send("ps", 0, KILL)
        job.wait_for(r"\[ps 0\] train_ctr: ps 0 serves at .*, from checkpoint-")
        first = self.auc(self.expect_end(job))
        self.assertGreater(first, 0.7)
        rest = self.expect_end(self.start_job(*growing, "--steps", 700, servers=3))
        self.assertIn("700 of 256 rows, from step 600 on", rest)
        self.assertGreater(self.auc(rest), first - 0.01)

    def test_the_memory_of_tables_needs_servers(self):
        alone = self.run_alone("--table-memory", "64MiB")
        self.assertEqual(alone.returncode, 2)
        self.assertIn("--table-memory 64MiB: expected it with --strategy parameter_server only", alone.stderr)


if __name__ == "__main__":
    unittest.main()
