#!/usr/bin/env python3
"""Reports as Chromium shows them, light and dark, wide and narrow: every plot is there, nothing is cut off or covered.

The pages have no scripts, and forbid them. A copy of each page gets one that measures what is drawn and leaves its
findings in the page, where --dump-dom finds them.
"""

import html
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

WRITER = os.environ["LOCKSTEP_WRITE_REPORTS"]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# How many plots each page has, by what write_reports.cpp puts into it.
PLOTS = {"usual": 9, "nan": 7, "one_epoch": 9, "hundred_classes": 7, "hostile": 4, "empty": 0, "comparison": 4, "pipeline": 1,
         "halves": 1, "interleaved": 1, "many_ranks": 1}
PIXELS = {"wide": (1280, 900), "narrow": (500, 900)}

MEASURE = """
const area = element => { const box = element.getBoundingClientRect();
                          return {left: box.left, right: box.right, top: box.top, bottom: box.bottom}; };
const channels = colour => colour.match(/[\\d.]+/g).map(Number);
const luminance = colour => channels(colour).slice(0, 3)
  .map(value => value / 255).map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => { const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
                             return (high + 0.05) / (low + 0.05); };
const blend = (front, share, back) => { const [f, b] = [channels(front), channels(back)];
                                        return `rgb(${f.slice(0, 3).map((v, i) => v * share + b[i] * (1 - share))})`; };
const backgroundOf = element => { for (let e = element; e; e = e.parentElement) {
                                    const colour = getComputedStyle(e).backgroundColor;
                                    if (!/, 0\\)$/.test(colour)) return colour; }
                                  return "rgb(255, 255, 255)"; };
const plots = [...document.querySelectorAll("svg.plot")].map(plot => ({
  caption: plot.closest("figure").querySelector("figcaption").textContent,
  box: area(plot),
  texts: [...plot.querySelectorAll("text")].map(text => {
    const card = backgroundOf(plot), previous = text.previousElementSibling;
    // A count's cell, or a micro-batch's box, is drawn right before it.
    const cell = ["count", "on-heat"].includes(text.getAttribute("class")) ? previous : null;
    const back = cell ? blend(getComputedStyle(cell).fill, Number(getComputedStyle(cell).fillOpacity), card) : card;
    return {text: text.textContent, box: area(text), contrast: contrast(getComputedStyle(text).fill, back)}; }),
  marks: [...plot.querySelectorAll(".line, .bar, .heat, .ops path")].map(mark => {
    const style = getComputedStyle(mark), colour = style.stroke === "none" ? style.fill : style.stroke;
    return {kind: mark.getAttribute("class"), box: area(mark), contrast: contrast(colour, backgroundOf(plot))}; }),
  boxes: Object.fromEntries([...plot.querySelectorAll(".ops path")].map(box => {
    const style = getComputedStyle(box), opacity = Number(style.fillOpacity);
    return [box.getAttribute("class"), channels(blend(style.fill, opacity, backgroundOf(plot)))]; })),
}));
const words = [...document.querySelectorAll("h1, h2, p, dt, dd, th, td, figcaption, li, summary")]
  .filter(element => element.offsetParent !== null)
  .map(element => ({text: element.textContent, contrast: contrast(getComputedStyle(element).color, backgroundOf(element))}));
const images = [...document.images].map(image => ({alt: image.alt, width: image.naturalWidth}));
const findings = document.createElement("pre");
findings.id = "findings";
findings.textContent = JSON.stringify({plots, words, images, title: document.title,
  background: getComputedStyle(document.body).backgroundColor,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth});
document.body.replaceChildren(findings);
"""


def overlap(a, b):
    """By how many pixels two boxes lie over each other, in the direction in which they do so less."""
    return min(min(a["right"], b["right"]) - max(a["left"], b["left"]), min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]))


@unittest.skipIf(BROWSER is None, "no Chromium is installed (Debian: chromium)")
class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        subprocess.run([WRITER, str(cls.folder)], check=True, timeout=60)
        cls.shown = {(page, scheme, width): cls.measure(page, scheme, width)
                     for page in PLOTS for scheme in ("light", "dark") for width in PIXELS}

    @classmethod
    def measure(cls, page, scheme, width):
        text = (cls.folder / f"{page}.html").read_text(encoding="utf-8")
        text, policies = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        assert policies == 1, page
        copy = cls.folder / f"{page}.measured.html"
        copy.write_text(text.replace("</body>", f"<script>{MEASURE}</script></body>"), encoding="utf-8")
        return cls.open(copy, scheme, width)

    @classmethod
    def open(cls, path, scheme, width):
        """Returns what the script found, and what the browser's console said."""
        result = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--enable-logging=stderr", f"--user-data-dir={cls.folder}/profile",
             f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
             "--window-size={},{}".format(*PIXELS[width]), "--dump-dom", path.as_uri()],
            capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        found = re.search(r'<pre id="findings">(.*?)</pre>', result.stdout, re.DOTALL)
        console = re.findall(r".*CONSOLE.*", result.stderr)
        if not found:
            raise AssertionError(f"{path.name}: no findings; {console or result.stderr[-2000:]}")
        return json.loads(html.unescape(found.group(1))) | {"console": console}

    def for_each(self, check):
        for (page, scheme, width), shown in self.shown.items():
            with self.subTest(page=page, scheme=scheme, width=width):
                check(page, scheme, shown)

    def test_every_plot_is_drawn(self):
        def check(page, _scheme, shown):
            self.assertEqual(len(shown["plots"]), PLOTS[page], [plot["caption"] for plot in shown["plots"]])
            for plot in shown["plots"]:
                box = plot["box"]
                self.assertGreater(box["right"] - box["left"], 90, plot["caption"])
                self.assertGreater(box["bottom"] - box["top"], 90, plot["caption"])

        self.for_each(check)

    def test_the_console_has_nothing_to_say(self):
        def check(_page, _scheme, shown):
            self.assertEqual(shown["console"], [])

        self.for_each(check)

    def test_scheme_is_the_readers(self):
        def check(_page, scheme, shown):
            brightness = sum(int(value) for value in re.findall(r"\d+", shown["background"])[:3]) / 3
            if scheme == "dark":
                self.assertLess(brightness, 60)
            else:
                self.assertGreater(brightness, 200)

        self.for_each(check)

    def test_no_text_of_a_plot_is_cut_off(self):
        def check(_page, _scheme, shown):
            for plot in shown["plots"]:
                box = plot["box"]
                for text in plot["texts"]:
                    inner = text["box"]
                    self.assertTrue(inner["left"] >= box["left"] - 1 and inner["right"] <= box["right"] + 1 and
                                    inner["top"] >= box["top"] - 1 and inner["bottom"] <= box["bottom"] + 1,
                                    (plot["caption"], text["text"]))

        self.for_each(check)

    def test_no_text_of_a_plot_lies_over_another(self):
        def check(page, _scheme, shown):
            for plot in shown["plots"]:
                texts = plot["texts"][:400]
                for i, first in enumerate(texts):
                    for second in texts[i + 1:]:
                        # Boxes are as high as the font's lines, letters are not.
                        self.assertLess(overlap(first["box"], second["box"]), 3,
                                        (plot["caption"], first["text"], second["text"]))

        self.for_each(check)

    def test_texts_can_be_read(self):
        """4.5:1, the Web Content Accessibility Guidelines' level AA."""
        def check(_page, _scheme, shown):
            for word in shown["words"]:
                self.assertGreaterEqual(word["contrast"], 4.5, word)
            for plot in shown["plots"]:
                for text in plot["texts"]:
                    # Counts in cells of a middle shade have large-text contrast.
                    least = 3.3 if plot["caption"] == "Confusion matrix" else 4.5
                    self.assertGreaterEqual(text["contrast"], least, (plot["caption"], text["text"]))

        self.for_each(check)

    def test_lines_and_bars_can_be_seen(self):
        """3:1, what the guidelines ask of graphics."""
        def check(_page, _scheme, shown):
            for plot in shown["plots"]:
                for mark in plot["marks"]:
                    self.assertGreaterEqual(mark["contrast"], 3, (plot["caption"], mark["kind"]))

        self.for_each(check)

    def test_kinds_of_computations_look_different(self):
        kinds = {"pipeline": ["b", "f"], "halves": ["f", "i", "later f", "later i", "later w", "w"],
                 "interleaved": ["b", "f", "later b", "later f"], "many_ranks": ["b", "f"]}
        def check(page, _scheme, shown):
            if page not in kinds:
                return
            boxes = shown["plots"][0]["boxes"]
            self.assertEqual(sorted(boxes), kinds[page])
            for first, second in itertools.combinations(sorted(boxes), 2):
                self.assertGreater(math.dist(boxes[first], boxes[second]), 45, (first, second))

        self.for_each(check)

    def test_page_is_no_wider_than_its_window(self):
        def check(_page, _scheme, shown):
            self.assertLessEqual(shown["overflow"], 0)

        self.for_each(check)

    def test_images_are_whole(self):
        counts = {"usual": 24, "nan": 1, "hostile": 1}
        def check(page, _scheme, shown):
            self.assertEqual([image["width"] for image in shown["images"]], [28] * counts.get(page, 0))
            self.assertTrue(all(image["alt"] for image in shown["images"]))

        self.for_each(check)

    def test_texts_of_a_run_are_texts_and_nothing_else(self):
        def check(page, _scheme, shown):
            if page == "hostile":
                self.assertTrue(shown["title"].startswith("<script>document.title='taken'</script>\"'&\ufffd\ufffd"))

        self.for_each(check)

    def test_pages_need_nothing_else(self):
        for page in PLOTS:
            text = (self.folder / f"{page}.html").read_text(encoding="utf-8")
            self.assertNotIn("<script", text)
            self.assertEqual(re.findall(r'(?:src|href)="(?!data:)[^"]*', text), [])
            self.assertNotIn("url(", text)
            self.assertNotIn("@import", text)


if __name__ == "__main__":
    unittest.main()
