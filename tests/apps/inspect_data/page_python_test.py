#!/usr/bin/env python3
"""The pages of inspect_data as Chromium shows them, light and dark, wide and narrow, with the checks of reports."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

# It asks for its own writer when it is imported.
os.environ.setdefault("LOCKSTEP_WRITE_REPORTS", "")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "training/reporting/html"))
import report_test  # noqa: E402
from inspect_data_case import INSPECT_DATA, table  # noqa: E402

HOSTILE = "<script>document.title='taken'</script>\"'&"


def hostile():
    return pa.table({"label": [HOSTILE, "x" * 200, "\x1b[2J"], HOSTILE: [1, 2, 3], "w" * 100: [1.5, -2e300, 3e-300]})


class PageTest(report_test.ReportTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        data = {"usual": table(), "hostile": hostile(), "empty": table().slice(0, 0),
                "classes": pa.table({"label": [f"class {i % 300} of them" for i in range(900)], "x": list(range(900))})}
        # The classes; ten columns of numbers; elements and lengths of two of lists; lengths of a binary and of a text.
        report_test.PLOTS = {"usual": 1 + 11 + 4 + 2, "hostile": 3, "empty": 0, "classes": 2}
        for name, content in data.items():
            pq.write_table(content, cls.folder / f"{name}.parquet")
            subprocess.run([INSPECT_DATA, str(cls.folder / f"{name}.parquet"), "--html", str(cls.folder / f"{name}.html")],
                           check=True, timeout=60, stdout=subprocess.DEVNULL)
        cls.shown = {(page, scheme, width): cls.measure(page, scheme, width)
                     for page in report_test.PLOTS for scheme in ("light", "dark") for width in report_test.PIXELS}

    def test_kinds_of_computations_look_different(self):
        self.skipTest("these pages have none")

    def test_images_are_whole(self):
        self.for_each(lambda _page, _scheme, shown: self.assertEqual(shown["images"], []))

    def test_texts_of_a_run_are_texts_and_nothing_else(self):
        self.for_each(lambda _page, _scheme, shown: self.assertTrue(shown["title"].startswith("Data in "), shown["title"]))


def load_tests(loader, _tests, _pattern):
    return loader.loadTestsFromTestCase(PageTest)


if __name__ == "__main__":
    unittest.main()
