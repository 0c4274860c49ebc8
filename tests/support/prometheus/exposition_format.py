"""Prometheus's text exposition format (version 0.0.4), read strictly by its rules."""

import re
import urllib.request

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
TYPES = {"counter", "gauge", "summary", "histogram", "untyped"}
# The suffixes that a summary or a histogram appends to its name.
SUFFIXES = {"summary": {"", "_sum", "_count"}, "histogram": {"_bucket", "_sum", "_count"}}


def unescaped(text):
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def labels_of(text):
    labels = {}
    at = 0
    while at < len(text):
        found = LABEL.match(text, at)
        if not found or found[1] in labels:
            raise ValueError(f"expected new labels, but got {text!r}")
        labels[found[1]] = unescaped(found[2])
        at = found.end()
        if at < len(text):
            if text[at] != ",":
                raise ValueError(f"expected a comma between labels, but got {text!r}")
            at += 1
    return labels


class Metrics:
    """The families of one scrape: help texts, types and samples by name and labels."""

    def __init__(self, text):
        self.text = text
        self.help, self.types, self.samples = {}, {}, {}
        if not text.endswith("\n"):
            raise ValueError("expected a line feed at the end")
        for line in text.splitlines():
            self.read(line)

    def read(self, line):
        if line.startswith("# HELP "):
            name, _, help_text = line[len("# HELP "):].partition(" ")
            if name in self.help:
                raise ValueError(f"expected one HELP for {name}")
            self.help[name] = unescaped(help_text)
        elif line.startswith("# TYPE "):
            name, kind = line[len("# TYPE "):].split(" ")
            if name in self.types or kind not in TYPES:
                raise ValueError(f"expected one TYPE for {name}, but got {line!r}")
            self.types[name] = kind
            self.current = name
        elif line and not line.startswith("#"):
            self.read_sample(line)

    def read_sample(self, line):
        found = SAMPLE.fullmatch(line)
        if not found:
            raise ValueError(f"expected a sample, but got {line!r}")
        name, labels, value = found[1], labels_of(found[2] or ""), float(found[3])
        # All samples of a family come together, after its TYPE.
        suffixes = SUFFIXES.get(self.types[self.current], {""})
        if name not in {self.current + suffix for suffix in suffixes}:
            raise ValueError(f"expected a sample of {self.current}, but got {line!r}")
        key = (name, frozenset(labels.items()))
        if key in self.samples:
            raise ValueError(f"expected each sample once, but got {line!r}")
        self.samples[key] = value

    def value(self, metric, /, **labels):
        return self.samples[metric, frozenset(labels.items())]

    def names(self):
        """The names of all families but those of the library's own server."""
        return {name for name in self.types if not name.startswith("exposer_")}


def scrape(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        if not response.headers["Content-Type"].startswith("text/plain"):
            raise ValueError(f"expected text/plain, but got {response.headers['Content-Type']}")
        return Metrics(response.read().decode())
