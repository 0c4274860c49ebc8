"""Texts in many scripts for tests of tokenizers: each seed gives the same ones everywhere."""

import random
import unicodedata

# First and last character of what words are made of.
SCRIPTS = {
    "latin": [(0x61, 0x7A), (0x61, 0x7A), (0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x17F)],
    "greek": [(0x391, 0x3C9)],
    "cyrillic": [(0x410, 0x44F)],
    "armenian": [(0x531, 0x587)],
    "hebrew": [(0x5D0, 0x5EA), (0x5B0, 0x5BC)],
    "arabic": [(0x621, 0x64A), (0x64B, 0x652), (0x660, 0x669)],
    "devanagari": [(0x904, 0x939), (0x93E, 0x94D), (0x958, 0x95F), (0x966, 0x96F)],
    "bengali": [(0x985, 0x9B9), (0x9BE, 0x9CD), (0x9DC, 0x9DF)],
    "tamil": [(0xB85, 0xBB9), (0xBBE, 0xBCD)],
    "thai": [(0xE01, 0xE3A), (0xE40, 0xE4E), (0xE50, 0xE59)],
    "tibetan": [(0xF40, 0xF6C), (0xF71, 0xF84)],
    "georgian": [(0x10D0, 0x10FA), (0x1C90, 0x1CBA)],
    "jamo": [(0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2)],
    "hangul": [(0xAC00, 0xD7A3)],
    "ethiopic": [(0x1200, 0x135A)],
    "khmer": [(0x1780, 0x17D3)],
    "mongolian": [(0x1820, 0x1878)],
    "vietnamese": [(0x1EA0, 0x1EF9), (0x61, 0x7A), (0x300, 0x309)],
    "hiragana": [(0x3041, 0x3096), (0x3099, 0x309A)],
    "katakana": [(0x30A1, 0x30FC), (0xFF66, 0xFF9F)],
    "han": [(0x4E00, 0x9FA5), (0x3400, 0x3500), (0x20000, 0x20100), (0xF900, 0xFA20)],
    "wide": [(0xFF01, 0xFF5E)],
    "ligatures": [(0xFB00, 0xFB06), (0x1C4, 0x1CC), (0x2160, 0x2188), (0x2460, 0x24EA)],
    "mathematical": [(0x1D400, 0x1D7FF), (0x2200, 0x22FF)],
    "emoji": [(0x1F300, 0x1F64F), (0x1F680, 0x1F6D7), (0x1F900, 0x1F9FF), (0x2600, 0x27BF)],
    "flags": [(0x1F1E6, 0x1F1FF)],
    "gothic": [(0x10330, 0x1034A)],
    "adlam": [(0x1E900, 0x1E943), (0x1E950, 0x1E959)],
}
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", " \n \n ", "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\x85",
          "\x0b", "\x0c", "\u1680", "\u202f", "\u205f", "\u180e", "\u200b", "\ufeff"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'LL", "'\u017f", "'x", "\u2019s", "''s", "don't",
                "I'LL", "it's", "we've "]
NUMBERS = ["0", "7", "42", "365", "2024", "31415", "1,000,000.00", "3.14e-10", "0xFF", "\u0661\u0662\u0663\u0664", "\u2167", "\u00bd",
           "x2y", "\u0967\u0968"]
MARKS = list(".,;:!?-_()[]{}<>/\\|@#$%^&*+=~`\"'") + ["...", "->", "::", "//", "/*", "*/", "==", "</", "\u3002", "\u300c", "\u2014",
                                                   "\u00bf", "\uff01", "!?!?", "/\n", ").\n\n", "\u2581", "\u2581\u2581x", "a\u2581b"]
OTHERS = ["\0", "\x01\x02", "\x1b[31m", "\x7f", "\u0080\u009f", "\ufffd", "\uffff", "\U0010ffff", "\ue000", "e\u0301", "\u0301", "a\u0323\u0307",
          "\u1100\u1161\u11a8", "\u212b", "\u212a", "\ufb01", "\u01c5", "\u0130", "\u1e9e", "\u00df", "\u0345", "\u0f73", "\u0344",
          "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F44D\U0001F3FD", "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001d11e",
          "\U0001d15e", "def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i];\n\t}\n",
          "<div class=\"a\">&nbsp;</div>", "https://example.org/a_b?c=d&e=%20f", "HTTPServerError", "camelCaseWord", "SCREAMING_CASE",
          "XMLHttpRequest2", "\u01c5\u01c8a", "A\u0300B"]


def character(rng, script):
    """A character that has been in Unicode since version 14 or longer: libraries know different versions."""
    while True:
        result = chr(rng.randint(*rng.choice(SCRIPTS[script])))
        if unicodedata.category(result) != "Cn":
            return result


def word(rng, script):
    return "".join(character(rng, script) for _ in range(1 + min(int(rng.expovariate(0.25)), 30)))


class TextMaker:
    """Makes texts of a vocabulary of words, some of which occur often."""

    def __init__(self, seed, tokens=()):
        self.rng = random.Random(seed)
        self.tokens = list(tokens)
        self.words = {script: [word(self.rng, script) for _ in range(40)] for script in SCRIPTS}

    def usual_word(self):
        script = "latin" if self.rng.random() < 0.4 else self.rng.choice(list(SCRIPTS))
        return self.words[script][min(int(self.rng.expovariate(0.15)), 39)]

    def fragment(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.45:
            return rng.choice(["", " ", " ", " ", "\n"]) + self.usual_word()
        if kind < 0.55:
            return "".join(rng.choice(SPACES) for _ in range(rng.choice([1, 1, 2, 5])))
        if kind < 0.62:
            return rng.choice(CONTRACTIONS)
        if kind < 0.70:
            return rng.choice(["", " "]) + rng.choice(NUMBERS)
        if kind < 0.80:
            return rng.choice(MARKS) * rng.choice([1, 1, 1, 2, 3, 17])
        if kind < 0.86:
            return word(rng, rng.choice(list(SCRIPTS)))
        if kind < 0.93 or not self.tokens:
            return rng.choice(OTHERS)
        token = rng.choice(self.tokens)
        if rng.random() < 0.2:
            token = token[:rng.randint(0, len(token))]
        return rng.choice(["", "", " ", "  ", "\n", "x", "_", "\u0301", "\u00e9", "\u3000"]) + token + rng.choice(
            ["", "", " ", " \n", "x", "7", "\u200d", "\u3042"])

    def text(self, fragments=30):
        return "".join(self.fragment() for _ in range(fragments))

    def long_texts(self):
        """Texts that are long in one way each."""
        latin = self.words["latin"]
        return ["", " ", "\n", "a", " " * 1000, "\n" * 1000, " \n" * 500, "\t" * 300 + "x", "7" * 1000, "a" * 3000, "Ab" * 2000,
                "".join(latin) * 20, " ".join(latin) * 5, "\u6587" * 1000, "".join(self.words["han"]) * 5, "!" * 1000, "\u0301" * 200,
                "a" + "\u0301\u0323" * 40, "\U0001F600" * 300, "\u2581" * 100, " \u2581 " * 50, "x " * 400, "\0" * 100]
