#!/usr/bin/env python3
"""Variables that scripts/launch_local.sh gives its workers, ports that it reserves, and its command line."""

import json
import resource
import shutil
import subprocess
import sys
import unittest

import launch_local_case

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


class LaunchLocalTest(launch_local_case.LaunchLocalCase):
    # Variables of the workers

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

    def test_a_job_has_a_name_of_its_own_and_begins_with_no_restart(self):
        environments = [[worker["environment"] for worker in self.tell_all()] for job in range(2)]
        names = [{environment["LOCKSTEP_JOB_ID"] for environment in job} for job in environments]
        for job, name in zip(environments, names):
            self.assertEqual(len(name), 1)
            self.assertRegex(next(iter(name)), "^[0-9a-f]{32}$")
            self.assertEqual([environment["LOCKSTEP_RESTART_COUNT"] for environment in job], ["0"] * 3)
        self.assertNotEqual(*names)

    def test_a_token_of_ones_own_is_kept(self):
        told = self.tell_all(LOCKSTEP_JOB_TOKEN="mine")
        self.assertEqual([worker["environment"]["LOCKSTEP_JOB_TOKEN"] for worker in told], ["mine"] * 3)

    def test_what_other_launchers_said_is_not_passed_on(self):
        others = [
            "RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_PROCID",
            "SLURM_NTASKS", "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PET_NNODES",
        ]
        replaced = [
            "TF_CONFIG", "LOCKSTEP_LISTEN_FD", "LOCKSTEP_JOB_ID", "LOCKSTEP_RESTART_COUNT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
        ]
        theirs = {name: "999" for name in others + replaced}
        own = {"OMP_NUM_THREADS": "3", "SLURM_JOB_ID": "7", "OMPI_MCA_btl": "tcp", "SOMETHING": "else"}
        for worker in self.tell_all(**theirs, **own):
            environment = worker["environment"]
            self.assertEqual([name for name in others if name in environment], [])
            self.assertEqual({name: environment[name] for name in own}, own)
            self.assertNotIn("999", [environment[name] for name in theirs if name in environment])

    def test_threads_are_left_to_the_program(self):
        self.assertNotIn("OMP_NUM_THREADS", self.tell_all()[0]["environment"])

    def test_threads_of_workers_sleep_while_they_wait_unless_the_user_chose_otherwise(self):
        def told(**chosen):
            environment = self.tell_all(**chosen)[0]["environment"]
            return environment.get("OMP_WAIT_POLICY"), environment.get("GOMP_SPINCOUNT")

        self.assertEqual(told(), ("passive", None))
        self.assertEqual(told(OMP_WAIT_POLICY="active"), ("active", None))
        self.assertEqual(told(GOMP_SPINCOUNT="1000"), (None, "1000"))

    def test_many_workers_start_with_the_users_limit_of_open_files(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        process = self.expect_success(self.launch(40, "sh", "-c", "ulimit -Sn"))
        self.assertEqual(sorted(process.stdout.splitlines()), sorted(f"[{rank}] 64" for rank in range(40)))

    def test_a_caller_that_has_closed_stdout_changes_nothing(self):
        process = subprocess.run(
            ["sh", "-c", f'exec "$@" >&- 2>{self.folder}/errors', "sh", launch_local_case.SCRIPT, "--output", self.folder, "2",
             *self.python(TELL_ALL)], env=self.environment, check=False, timeout=launch_local_case.TIMEOUT)
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
            (["--loud", "2", "true"],
             "expected --chief, --ps, --workers, --gpus, --output, --quiet, --grace, --max-restarts, --min-workers, --help "
             "or N, but got '--loud'"),
            (["--quiet=1", "2", "true"], "but got '--quiet=1'"),
            (["--grace", "soon", "2", "true"], "--grace: expected seconds from 0 to 86400, but got 'soon'"),
            (["--grace=-1", "2", "true"], "--grace: expected seconds from 0 to 86400, but got '-1'"),
            (["--grace", "86401", "2", "true"], "--grace: expected seconds from 0 to 86400, but got '86401'"),
            (["--max-restarts", "often", "2", "true"],
             "--max-restarts: expected a number of restarts from 0 to 1000000, but got 'often'"),
            (["--max-restarts=-1", "2", "true"],
             "--max-restarts: expected a number of restarts from 0 to 1000000, but got '-1'"),
            (["--max-restarts"], "--max-restarts: expected a number of restarts from 0 to 1000000, but got ''"),
            (["--max-restarts", "1", "--min-workers", "0", "2", "true"],
             "--min-workers: expected a number of workers from 1 to 2, but got '0'"),
            (["--max-restarts", "1", "--min-workers=3", "2", "true"],
             "--min-workers: expected a number of workers from 1 to 2, but got '3'"),
            (["--min-workers=1", "2", "true"], "--min-workers: expected --max-restarts with it, but got none"),
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
            ["sh", "-c", f"ulimit -Sn 64; ulimit -Hn 100; exec {launch_local_case.SCRIPT} 30 true"], capture_output=True, text=True,
            check=False, timeout=launch_local_case.TIMEOUT)
        self.assertEqual(process.returncode, 7)
        self.assertIn("N: so many workers take 184 open files, but the limit is 100", process.stderr)
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE), limits)

    def test_too_few_ports_are_named(self):
        if not shutil.which("unshare"):
            self.skipTest("unshare is not installed")
        process = subprocess.run(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo 50000 50001 >/proc/sys/net/ipv4/ip_local_port_range && "
             f"echo ready && exec {launch_local_case.SCRIPT} 3 true"], capture_output=True, text=True, check=False,
            timeout=launch_local_case.TIMEOUT)
        if "ready" not in process.stdout:
            self.skipTest(f"network namespaces are not permitted here: {process.stderr.strip()}")
        self.assertEqual(process.returncode, 7)
        self.assertEqual(process.stderr,
                         "launch_local.sh: cannot reserve 3 ports of 127.0.0.1: Address already in use\n")

    def test_help_names_every_option(self):
        process = self.expect_success(self.launch("--help"))
        self.assertTrue(process.stdout.startswith("usage: launch_local.sh [option...] N program [argument...]\n"))
        for option in ["--chief", "--gpus N|all", "--output FOLDER", "--quiet", "--grace SECONDS", "--max-restarts R",
                       "--min-workers M"]:
            self.assertIn(f"\n  {option} ", process.stdout)

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed")
    def test_shellcheck_finds_nothing(self):
        process = subprocess.run(["shellcheck", launch_local_case.SCRIPT], capture_output=True, text=True, check=False)
        self.assertEqual((process.returncode, process.stdout), (0, ""))


if __name__ == "__main__":
    sys.exit(unittest.main())
