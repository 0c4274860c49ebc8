#!/usr/bin/env python3
"""Python scrapes TrainingMetrics over HTTP and reads the text by the format's rules; promtool checks it; the Grafana dashboard
and the alerts in docs/ ask for no metric that is not served; docs/monitoring.md lists all that are."""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests/support/prometheus"))
from exposition_format import Metrics, scrape

SERVER = os.environ["LOCKSTEP_SERVE_METRICS"]
PAGE = ROOT / "docs/monitoring.md"
DASHBOARD = ROOT / "docs/monitoring/grafana_dashboard.json"
ALERTS = ROOT / "docs/monitoring/alerts.yaml"


class TrainingMetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen([SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.close)
        url = cls.server.stdout.readline().strip()
        if not url and cls.server.wait(timeout=30) == 77:
            raise unittest.SkipTest("this build has no prometheus-cpp")
        cls.metrics = scrape(url)

    @classmethod
    def close(cls):
        cls.server.stdin.close()
        cls.server.wait(timeout=30)
        cls.server.stdout.close()

    def test_values(self):
        value = self.metrics.value
        self.assertEqual(value("lockstep_steps_total", rank="1"), 10)
        self.assertEqual(value("lockstep_examples_total", rank="1"), 640)
        self.assertEqual(value("lockstep_training_seconds_total", rank="1"), 5)
        self.assertEqual(value("lockstep_input_wait_seconds_total", rank="1"), 0.125)
        self.assertEqual(value("lockstep_examples_per_second", rank="1"), 128)
        self.assertEqual((value("lockstep_epoch", rank="1"), value("lockstep_planned_epochs", rank="1")), (2, 5))
        self.assertEqual((value("lockstep_loss", rank="1"), value("lockstep_learning_rate", rank="1")), (0.25, 0.001))
        self.assertEqual(value("lockstep_device_memory_bytes", rank="1", device="gpu:0"), 2**20)
        for replica, seconds in (("2", 0.75), ("3", 0)):
            self.assertEqual(value("lockstep_replica_wait_seconds_total", rank="1", replica=replica), seconds)
        for state, seconds in (("computing", 3), ("waiting", 2), ("idle", 1)):
            self.assertEqual(value("lockstep_worker_seconds_total", rank="1", state=state), seconds)
        for kind, count in (("bad_example", 2), ("not_finite", 0), ("restart", 0)):
            self.assertEqual(value("lockstep_faults_total", rank="1", kind=kind), count)

    def test_logs_of_any_name_and_value(self):
        value = self.metrics.value
        self.assertTrue(math.isnan(value("lockstep_log", rank="1", name="validation_loss")))
        self.assertEqual(value("lockstep_log", rank="1", name="accuracy"), 0.75)
        self.assertEqual(value("lockstep_log", rank="1", name='a "name" with \\ and\nlines'), math.inf)

    def test_process(self):
        resident = self.metrics.value("process_resident_memory_bytes", rank="1")
        self.assertTrue(1e6 < resident < 1e10, resident)

    def test_every_metric_is_explained(self):
        for name in self.metrics.names():
            self.assertTrue(self.metrics.help[name].endswith("."), name)

    def test_names_follow_prometheus_conventions(self):
        """As its documentation on metric and label naming says."""
        for name in self.metrics.names():
            self.assertRegex(name, r"^(lockstep|process)_[a-z_]+$")
            self.assertEqual(name.endswith("_total"), self.metrics.types[name] == "counter", name)
            self.assertNotRegex(name, r"_(ms|millis|milliseconds|kib|mib|mb|percent)(_|$)")

    def test_promtool_finds_nothing(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("needs promtool (Debian: prometheus)")
        # The library's server counts its own work in microseconds, which promtool would mark.
        own = [line for line in self.metrics.text.splitlines() if not re.match(r"(# \w+ )?exposer_", line)]
        checked = subprocess.run([promtool, "check", "metrics"], input="\n".join(own) + "\n", capture_output=True, text=True,
                                 timeout=60, check=False)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))

    def test_the_dashboard_shows_only_what_is_served(self):
        dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        queries += [variable["query"]["query"] for variable in dashboard["templating"]["list"]
                    if variable["type"] == "query"]
        self.assertGreater(len(queries), 10)
        asked = {name for query in queries for name in re.findall(r"\b(?:lockstep|process)_\w+", query)}
        self.assertEqual(asked - self.metrics.names(), set())
        # And everything that is served is shown, but for the process's own times.
        self.assertEqual(self.metrics.names() - asked, {"process_start_time_seconds"})

    def test_the_page_lists_what_is_served_with_its_type_and_labels(self):
        text = PAGE.read_text(encoding="utf-8")
        listed = {name: (kind, set(re.findall(r"`(\w+)`", labels)))
                  for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", text, re.MULTILINE)}
        served = {name: (self.metrics.types[name], set()) for name in self.metrics.names()}
        for name, labels in re.findall(r"^(\w+)\{(.*)\} ", self.metrics.text, re.MULTILINE):
            if name in served:
                served[name][1].update(set(re.findall(r'(\w+)="', labels)) - {"rank"})
        self.assertEqual(listed, served)

    def test_the_alerts_ask_only_for_what_is_served(self):
        asked = set(re.findall(r"\blockstep_\w+", ALERTS.read_text(encoding="utf-8")))
        self.assertGreater(len(asked), 3)
        self.assertEqual(asked - self.metrics.names(), set())

    def test_promtool_understands_the_dashboards_queries(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("needs promtool (Debian: prometheus)")
        dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        rules = [{"record": f"query:{index}", "expr": re.sub(r"\$(__)?\w+", lambda found: "1m" if found[1] else ".*", query)}
                 for index, query in enumerate(queries)]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # YAML reads JSON
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            checked = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, text=True, timeout=60,
                                     check=False)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        self.assertIn(f"{len(queries)} rules found", checked.stdout)

    def test_the_dashboard_has_no_panels_over_each_other(self):
        dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        seen = set()
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & seen, panel["title"])
            seen |= cells


@unittest.skipUnless(shutil.which("promtool"), "needs promtool (Debian: prometheus)")
class RulesTest(unittest.TestCase):
    """promtool computes the dashboard's and the alerts' queries from made-up series."""

    def check(self, command, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                pathlib.Path(folder, name).write_text(content, encoding="utf-8")
            checked = subprocess.run([*command.split(), next(iter(files))], cwd=folder, capture_output=True, text=True,
                                     timeout=60, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def check_series(self, series, **expected):
        """`expected` holds promql_expr_test or alert_rule_test. `series` are sampled once a minute."""
        tests = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m",
                 "tests": [{"interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series],
                            **expected}]}
        self.check("promtool test rules", {"tests.yaml": json.dumps(tests), "alerts.yaml": ALERTS.read_text(encoding="utf-8")})

    def test_the_dashboard_counts_a_fault_that_all_workers_count_once(self):
        panels = {panel["title"]: panel for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]}
        query = re.sub(r"\$job", ".*", panels["Faults"]["targets"][0]["expr"]).replace("$__range", "30m")
        series = []
        for rank in (0, 1):
            name = f'lockstep_faults_total{{job="a",rank="{rank}",kind='
            series.append((name + '"restart"}', "0x9 0 1x19"))  # of its second start, which first served a 0
            series.append((name + '"not_finite"}', "0x4 3x25"))
            series.append((name + '"bad_example"}', "0x30"))
        # increase() extrapolates the 3 to the range's ends.
        self.check_series(series, promql_expr_test=[{"expr": f"round({query})", "eval_time": "30m",
                                                     "exp_samples": [{"labels": "{}", "value": 4}]}])

    def test_alerts_fire(self):
        restart = 'lockstep_faults_total{job="a",rank="0",kind="restart"}'
        steps = 'lockstep_steps_total{job="a",rank="0"}'
        annotated = "has made no step for 15 minutes"
        self.check_series([(restart, "0x4 3x30"), (steps, "0+10x5 50x40")], alert_rule_test=[
            {"eval_time": "3m", "alertname": "LockstepRestartedOften", "exp_alerts": []},
            {"eval_time": "6m", "alertname": "LockstepRestartedOften", "exp_alerts": [
                {"exp_labels": {"job": "a"}, "exp_annotations": {"summary": "a has been restarted 3 times"}}]},
            {"eval_time": "15m", "alertname": "LockstepNoSteps", "exp_alerts": []},
            {"eval_time": "30m", "alertname": "LockstepNoSteps", "exp_alerts": [
                {"exp_labels": {"job": "a"}, "exp_annotations": {"summary": f"a {annotated}"}}]}])
        waiting = 'lockstep_input_wait_seconds_total{job="a",rank="0"}', "0+30x40"
        training = 'lockstep_training_seconds_total{job="a",rank="0"}', "0+60x40"
        undone = 'lockstep_faults_total{job="a",rank="0",kind="not_finite"}', "0x20 1x20"
        self.check_series([waiting, training, undone], alert_rule_test=[
            {"eval_time": "10m", "alertname": "LockstepWaitsForInput", "exp_alerts": []},
            {"eval_time": "20m", "alertname": "LockstepNotFinite", "exp_alerts": []},
            {"eval_time": "22m", "alertname": "LockstepNotFinite", "exp_alerts": [
                {"exp_labels": {"job": "a"},
                 "exp_annotations": {"summary": "a has undone steps whose loss or gradients were not finite"}}]},
            {"eval_time": "30m", "alertname": "LockstepWaitsForInput", "exp_alerts": [
                {"exp_labels": {"job": "a"},
                 "exp_annotations": {"summary": "a spends 50% of its steps waiting for data"}}]}])

    def test_the_configuration_is_valid(self):
        text = (ALERTS.parent / "prometheus.yaml").read_text(encoding="utf-8")
        # Debian's promtool knows no Kubernetes.
        static, count = re.subn(r"kubernetes_sd_configs:\n +- role: pod", 'static_configs: [{targets: ["pod"]}]', text)
        self.assertEqual(count, 1)
        self.check("promtool check config", {"prometheus.yaml": static, "alerts.yaml": ALERTS.read_text(encoding="utf-8")})

    def test_the_page_shows_the_alerts_names(self):
        names = re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))
        shown = re.findall(r"^\| `(Lockstep\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(names, shown)


class ExpositionFormatTest(unittest.TestCase):
    """The reader that the test above trusts."""

    def test_what_breaks_a_rule_is_refused(self):
        for text in ("# TYPE a gauge\na 1", "# TYPE a gauge\nb 1\n", "# TYPE a gauge\na 1\na 2\n", "# TYPE a size\na 1\n",
                     "# TYPE a gauge\na{b=1} 1\n", '# TYPE a gauge\na{b="1",b="2"} 1\n', "# TYPE a gauge\na one\n",
                     "# TYPE a gauge\n# TYPE a gauge\n"):
            with self.assertRaises(ValueError, msg=text):
                Metrics(text)

    def test_labels_and_numbers_are_read(self):
        metrics = Metrics('# HELP a Says \\\\ and \\n.\n# TYPE a gauge\na{b="\\"x\\"",c="\\\\\\n"} 1e-3\n')
        self.assertEqual(metrics.value("a", b='"x"', c="\\\n"), 0.001)
        self.assertEqual(metrics.help["a"], "Says \\ and \n.")


if __name__ == "__main__":
    unittest.main()
