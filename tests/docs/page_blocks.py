"""The blocks of code that a page in Markdown shows."""

import re


def blocks(page, language):
    """Returns (number of the line that the code begins at, code) of each block in `language`, in the page's order."""
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(rf"^```{re.escape(language)}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in pattern.finditer(text)]
