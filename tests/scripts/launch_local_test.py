#!/usr/bin/env python3
"""Runs scripts/launch_local.sh with small programs as workers, and checks what they are given, what is printed of them and
how they end."""

import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "launch_local.sh"
TIMEOUT = 60  # seconds, for what takes a fraction of one

# What workers in Python begin with. They wait for each other's files in the test's own folder.
PREAMBLE = """
    import json, os, pathlib, signal, socket, stat, sys, time
    folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["LOCAL_RANK"])

    def own_socket():
        return socket.socket(fileno=int(os.environ["LOCKSTEP_LISTEN_FD"]))

    def address(rank):
        host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][rank].split(":")
        return host, int(port)

    def wait_for(name):
        while not (folder / name).exists():
            time.sleep(0.01)
    """

TELL_ALL = """
    def is_socket(descriptor):
        try:
            return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        except OSError:
            return False

    own = own_socket()
    print(json.dumps({
        "environment": dict(os.environ),
        "address": "%s:%d" % own.getsockname(),
        "listens": own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN),
        "reuses": own.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR),
        "sockets": [name for name in os.listdir("/proc/self/fd") if is_socket(int(name))],
        "stdin": os.readlink("/proc/self/fd/0"),
        "arguments": sys.argv[2:],
    }))
    """

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


def is_running(process):
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


class LaunchLocalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {"PATH": os.environ["PATH"]}

    def python(self, text):
        """The command of a worker in Python."""
        path = self.folder / "worker.py"
        path.write_text(textwrap.dedent(PREAMBLE) + textwrap.dedent(text), encoding="utf-8")
        return [sys.executable, "-I", "-S", str(path), str(self.folder)]

    def shell(self, text):
        """The command of a worker that is a shell, in the test's folder."""
        return ["sh", "-c", f"cd {self.folder}\n{textwrap.dedent(text)}"]

    def launch(self, *arguments, **environment):
        """The completed process of launch_local.sh."""
        return subprocess.run(
            [SCRIPT, *map(str, arguments)], env={**self.environment, **environment}, capture_output=True, text=True,
            errors="replace", check=False, timeout=TIMEOUT)

    def start(self, *arguments, stdout=subprocess.PIPE):
        """A running launch_local.sh, in a process group of its own as a shell would start it."""
        process = subprocess.Popen(
            [SCRIPT, *map(str, arguments)], env=self.environment, stdout=stdout, stderr=subprocess.PIPE, text=True,
            start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()

    def expect_success(self, process):
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return process

    def lines_of(self, text, rank):
        prefix = f"[{rank}] "
        return [line[len(prefix):] for line in text.splitlines() if line.startswith(prefix)]

    def expect_soon(self, condition):
        end = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), end, "it did not come to pass")
            time.sleep(0.01)

    def read_ids(self, count):
        """The process ids that so many shells wrote to the file `ids`."""
        path = self.folder / "ids"
        self.expect_soon(lambda: path.exists() and path.read_text(encoding="utf-8").count("\n") == count)
        return [int(line) for line in path.read_text(encoding="utf-8").split()]

    # What the workers are given

    def tell_all(self, *arguments, workers=3, **environment):
        process = self.expect_success(
            self.launch(*arguments, workers, *self.python(TELL_ALL), "an argument", "--quiet", **environment))
        return [json.loads(line) for rank in range(workers) for line in self.lines_of(process.stdout, rank)]

    def test_each_worker_has_its_tf_config_and_the_bound_socket_of_its_port(self):
        told = self.tell_all()
        configs = [json.loads(worker["environment"]["TF_CONFIG"]) for worker in told]
        addresses = [worker["address"] for worker in told]
        self.assertEqual(len(set(addresses)), 3)
        for rank, (worker, config) in enumerate(zip(told, configs)):
            self.assertEqual(config, {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
            self.assertRegex(worker["address"], r"^127\.0\.0\.1:[1-9][0-9]*$")
            self.assertEqual([worker["listens"], worker["reuses"]], [0, 0])
            self.assertEqual(worker["sockets"], [worker["environment"]["LOCKSTEP_LISTEN_FD"]])
            self.assertEqual(worker["environment"]["LOCAL_RANK"], str(rank))
            self.assertEqual(worker["environment"]["LOCAL_WORLD_SIZE"], "3")
            self.assertEqual(worker["stdin"], "/dev/null")
            self.assertEqual(worker["arguments"], ["an argument", "--quiet"])

    def test_the_first_worker_may_be_the_chief(self):
        for workers in [3, 1]:
            told = self.tell_all("--chief", workers=workers)
            addresses = [worker["address"] for worker in told]
            cluster = {"chief": addresses[:1], "worker": addresses[1:]} if workers > 1 else {"chief": addresses}
            tasks = [{"type": "chief", "index": 0}, {"type": "worker", "index": 0}, {"type": "worker", "index": 1}]
            self.assertEqual(
                [json.loads(worker["environment"]["TF_CONFIG"]) for worker in told],
                [{"cluster": cluster, "task": task} for task in tasks[:workers]])

    def test_a_job_has_one_random_token(self):
        tokens = [{worker["environment"]["LOCKSTEP_JOB_TOKEN"] for worker in self.tell_all()} for job in range(2)]
        for token in tokens:
            self.assertEqual(len(token), 1)
            self.assertRegex(next(iter(token)), "^[0-9a-f]{64}$")
        self.assertNotEqual(*tokens)

    def test_a_token_of_ones_own_is_kept(self):
        told = self.tell_all(LOCKSTEP_JOB_TOKEN="mine")
        self.assertEqual([worker["environment"]["LOCKSTEP_JOB_TOKEN"] for worker in told], ["mine"] * 3)

    def test_what_other_launchers_said_is_not_passed_on(self):
        others = [
            "RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_PROCID",
            "SLURM_NTASKS", "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PET_NNODES",
        ]
        theirs = {name: "999" for name in others + ["TF_CONFIG", "LOCKSTEP_LISTEN_FD", "LOCAL_RANK", "LOCAL_WORLD_SIZE"]}
        own = {"OMP_NUM_THREADS": "3", "SLURM_JOB_ID": "7", "OMPI_MCA_btl": "tcp", "SOMETHING": "else"}
        for worker in self.tell_all(**theirs, **own):
            environment = worker["environment"]
            self.assertEqual([name for name in others if name in environment], [])
            self.assertEqual({name: environment[name] for name in own}, own)
            self.assertNotIn("999", [environment[name] for name in theirs if name in environment])

    def test_threads_are_left_to_the_program(self):
        self.assertNotIn("OMP_NUM_THREADS", self.tell_all()[0]["environment"])

    def test_many_workers_start_with_the_users_limit_of_open_files(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        process = self.expect_success(self.launch(40, "sh", "-c", "ulimit -Sn"))
        self.assertEqual(sorted(process.stdout.splitlines()), sorted(f"[{rank}] 64" for rank in range(40)))

    def test_a_caller_that_has_closed_stdout_changes_nothing(self):
        process = subprocess.run(
            ["sh", "-c", f'exec "$@" >&- 2>{self.folder}/errors', "sh", SCRIPT, "--output", self.folder, "2",
             *self.python(TELL_ALL)], env=self.environment, check=False, timeout=TIMEOUT)
        self.assertEqual((process.returncode, (self.folder / "errors").read_text(encoding="utf-8")), (0, ""))
        told = json.loads((self.folder / "worker-1.out").read_text(encoding="utf-8"))
        self.assertEqual(told["sockets"], [told["environment"]["LOCKSTEP_LISTEN_FD"]])

    # Ports

    def test_a_worker_can_be_connected_to_once_it_listens(self):
        process = self.expect_success(self.launch(2, *self.python("""
            if rank == 0:
                wait_for("refused")
                listener = own_socket()
                listener.listen()
                (folder / "listens").touch()
                connection, _ = listener.accept()
                connection.sendall(b"hello")
            else:
                try:
                    socket.create_connection(address(0))
                except ConnectionRefusedError:
                    (folder / "refused").touch()
                wait_for("listens")
                print(socket.create_connection(address(0)).recv(5).decode())
            """)))
        self.assertEqual(process.stdout, "[1] hello\n")

    def test_a_port_is_reserved_until_its_worker_ends_and_free_afterwards(self):
        process = self.expect_success(self.launch(2, *self.python("""
            def bind():
                with socket.socket() as other:
                    try:
                        other.bind(address(0))
                    except OSError:
                        return "taken"
                    return "free"

            if rank == 0:
                wait_for("tried_unbound")
                listener = own_socket()
                listener.listen()
                (folder / "listens").touch()
                wait_for("tried")
            else:
                print(bind())
                (folder / "tried_unbound").touch()
                wait_for("listens")
                print(bind())
                (folder / "tried").touch()
                while bind() == "taken":
                    time.sleep(0.01)
                print(bind())
            """)))
        self.assertEqual(self.lines_of(process.stdout, 1), ["taken", "taken", "free"])

    # Output

    def test_lines_are_printed_by_rank_and_never_mixed(self):
        output = self.folder / "a" / "logs"
        process = self.launch("--output", output, 2, *self.python("""
            for number in range(10000):
                line = f"{rank} {number} " + "x" * (number % 200)
                for stream in (sys.stdout, sys.stderr):
                    # In halves, so that what arrives ends within lines.
                    stream.write(line[:-3])
                    if number % 100 == 0:
                        stream.flush()
                    stream.write(line[-3:] + "\\n")
            """))
        self.assertEqual(process.returncode, 0)
        for rank in range(2):
            written = [f"{rank} {number} " + "x" * (number % 200) for number in range(10000)]
            for printed, end in [(process.stdout, "out"), (process.stderr, "err")]:
                self.assertEqual(len(printed.splitlines()), 20000)
                self.assertTrue(self.lines_of(printed, rank) == written)
                file = output / f"worker-{rank}.{end}"
                self.assertTrue(file.read_text(encoding="utf-8").splitlines() == written)

    def test_files_hold_exactly_what_was_written(self):
        for earlier in ["worker-0.out", "worker-0.err"]:
            (self.folder / earlier).write_text("what an earlier job wrote", encoding="utf-8")
        process = self.launch(f"--output={self.folder}", 1, "sh", "-c", r"printf 'a\r\n\n\200\rb'; printf '\rc\r' >&2")
        self.assertEqual(process.returncode, 0)
        self.assertEqual((self.folder / "worker-0.out").read_bytes(), b"a\r\n\n\x80\rb")
        self.assertEqual((self.folder / "worker-0.err").read_bytes(), b"\rc\r")

    def test_progress_lines_and_an_unfinished_last_line_are_lines(self):
        process = self.expect_success(
            self.launch(1, "sh", "-c", r"printf '\r10%%\r20%%\r'; sleep 0.1; printf '\nwindows\r'; printf '\n\nlast'"))
        self.assertEqual(process.stdout, "[0] 10%\n[0] 20%\n[0] windows\n[0] \n[0] last\n")

    def test_on_a_terminal_a_progress_line_takes_the_place_of_the_one_before(self):
        self.environment["TERM"] = "xterm"
        terminal, other_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = self.start(1, "sh", "-c", r"printf '10%%\r20%%\rdone\nnext\n'", stdout=other_end)
        os.close(other_end)
        printed = b""
        while not printed.endswith(b"next\r\n"):
            printed += os.read(terminal, 1000)
        self.assertEqual(process.wait(TIMEOUT), 0)
        self.assertEqual(printed, b"[0] 10%\r\x1b[K[0] 20%\r\x1b[K[0] done\r\n[0] next\r\n")

    def test_a_line_without_end_is_not_kept_forever(self):
        process = self.expect_success(self.launch(1, "sh", "-c", "yes | tr -d '\\n' | head -c 5000000"))
        lines = self.lines_of(process.stdout, 0)
        self.assertEqual("".join(lines), "y" * 5000000)
        self.assertTrue(1 < len(lines) < 10, len(lines))

    def test_quiet_prints_the_first_worker_alone_and_keeps_the_files_of_all(self):
        process = self.launch(
            "--quiet", "--output", self.folder, 3, "sh", "-c", "echo out $LOCAL_RANK; echo err $LOCAL_RANK >&2")
        self.assertEqual(
            (process.returncode, process.stdout, process.stderr), (0, "[0] out 0\n", "[0] err 0\n"))
        self.assertEqual((self.folder / "worker-2.err").read_text(encoding="utf-8"), "err 2\n")

    def test_output_that_cannot_be_written_is_told_and_ends_no_worker(self):
        (self.folder / "worker-0.out").symlink_to("/dev/full")
        process = self.launch("--output", self.folder, 1, *self.shell("echo one; sleep 0.2; echo two; touch done"))
        self.assertEqual((process.returncode, process.stdout), (7, "[0] one\n[0] two\n"))
        self.assertIn("cannot write to --output for worker 0 any more: No space left on device", process.stderr)
        self.assertTrue((self.folder / "done").exists())
        with open("/dev/full", "wb") as full:
            process = self.start(1, "sh", "-c", "echo one; sleep 0.2; echo two; echo three >&2", stdout=full)
            _, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 7)
        self.assertEqual(
            errors, "launch_local.sh: cannot write to stdout any more: No space left on device\n[0] three\n")

    def test_the_workers_end_where_the_reader_of_their_output_has_left(self):
        process = self.start(2, *self.shell("echo $$ >>ids; while :; do echo line; sleep 0.05; done"))
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(TIMEOUT), 128 + signal.SIGPIPE)
        self.assertEqual([is_running(worker) for worker in self.read_ids(2)], [False, False])

    def test_a_reader_that_stalls_holds_up_no_end(self):
        process = self.start("--grace", "0.1", 2, *self.shell("""
            echo $$ >>ids
            [ $LOCAL_RANK = 0 ] || { sleep 0.5; exit 9; }
            exec yes
            """))
        workers = self.read_ids(2)
        self.expect_soon(lambda: not any(os.path.exists(f"/proc/{worker}") for worker in workers))
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(TIMEOUT), 9)

    # Ends

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
        # It finds both ended when it goes on.
        process.send_signal(signal.SIGSTOP)
        (self.folder / "end").touch()
        self.expect_soon(lambda: not any(map(is_running, workers)))
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(TIMEOUT), 4)

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

    def test_what_a_worker_leaves_running_ends_with_it(self):
        self.expect_success(self.launch(2, *self.shell("sleep 60 & echo $! >>ids")))
        processes = self.read_ids(2)
        self.expect_soon(lambda: not any(map(is_running, processes)))

    def test_a_terminals_signal_reaches_each_worker_once(self):
        process = self.start(2, *self.python(COUNT_SIGNALS))
        for _ in range(2):
            self.assertIn("ready", process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=TIMEOUT)
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
        printed, errors = process.communicate(timeout=TIMEOUT)
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
        _, errors = process.communicate(timeout=TIMEOUT)
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
        printed, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 143)
        self.assertEqual(printed, "[0] saved\n[1] saved\n")
        self.assertNotIn("SIGTERM", errors)

    def test_workers_die_with_a_launcher_that_is_killed(self):
        process = self.start(3, *self.shell("echo $$ >>ids; exec sleep 60"))
        workers = self.read_ids(3)
        self.assertEqual([is_running(worker) for worker in workers], [True] * 3)
        process.kill()
        self.expect_soon(lambda: not any(map(is_running, workers)))

    # Usage

    def test_wrong_usage_is_refused_in_one_line(self):
        (self.folder / "text").touch()
        (self.folder / "no_program").write_text("no program", encoding="utf-8")
        (self.folder / "no_program").chmod(0o755)
        number = "N: expected a number of workers from 1 to 1024, but got "
        file = "program: expected an executable file, but "
        for arguments, message in [
            ([], "N: expected a number of workers and a program, but got none"),
            (["0", "true"], number + "'0'"),
            (["-1", "true"], number + "'-1'"),
            (["1025", "true"], number + "'1025'"),
            (["two", "true"], number + "'two'"),
            (["1.5", "true"], number + "'1.5'"),
            (["9" * 5000, "true"], number + "'999"),
            (["", "true"], number + "''"),
            (["2"], "program: expected a program to run, but got none"),
            (["2", ""], file + "'' is no program in PATH"),
            (["2", "no such program"], file + "'no such program' is no program in PATH"),
            (["2", self.folder / "absent"], file + f"'{self.folder}/absent' does not exist"),
            (["2", self.folder / "text"], file + f"'{self.folder}/text' is not executable"),
            (["2", self.folder], file + f"'{self.folder}' is a folder"),
            (["2", self.folder / "no_program"], f"program: cannot start '{self.folder}/no_program' as worker 0: "),
            (["--loud", "2", "true"], "expected --chief, --output, --quiet, --grace, --help or N, but got '--loud'"),
            (["--quiet=1", "2", "true"], "but got '--quiet=1'"),
            (["--grace", "soon", "2", "true"], "--grace: expected seconds from 0 to 86400, but got 'soon'"),
            (["--grace=-1", "2", "true"], "--grace: expected seconds from 0 to 86400, but got '-1'"),
            (["--grace", "86401", "2", "true"], "--grace: expected seconds from 0 to 86400, but got '86401'"),
            (["--output"], "--output: expected a folder, but got ''"),
            (["--output", self.folder / "text", "2", "true"], "--output: expected a folder to write to, but got "),
        ]:
            with self.subTest(arguments=arguments):
                process = self.launch(*arguments)
                self.assertEqual((process.returncode, process.stdout), (2, ""))
                self.assertEqual(process.stderr.count("\n"), 1)
                self.assertTrue(process.stderr.startswith("launch_local.sh: "), process.stderr)
                self.assertIn(message, process.stderr)

    def test_too_few_open_files_are_named(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        process = subprocess.run(
            ["sh", "-c", f"ulimit -Sn 64; ulimit -Hn 100; exec {SCRIPT} 30 true"], capture_output=True, text=True,
            check=False, timeout=TIMEOUT)
        self.assertEqual(process.returncode, 7)
        self.assertIn("N: so many workers take 184 open files, but the limit is 100", process.stderr)
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE), limits)

    def test_help_names_every_option(self):
        process = self.expect_success(self.launch("--help"))
        self.assertTrue(process.stdout.startswith("usage: launch_local.sh [option...] N program [argument...]\n"))
        for option in ["--chief", "--output FOLDER", "--quiet", "--grace SECONDS"]:
            self.assertIn(f"\n  {option} ", process.stdout)

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed")
    def test_shellcheck_finds_nothing(self):
        process = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
        self.assertEqual((process.returncode, process.stdout), (0, ""))


if __name__ == "__main__":
    sys.exit(unittest.main())
