"""Finds the names that the public headers declare, without a compiler."""

import re

LAYERS = ("runtime", "parameter_server", "strategies", "training", "models", "datasets")
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|^\s*#[^\n]*', re.DOTALL | re.MULTILINE)
TOKEN = re.compile(r"[A-Za-z_]\w*|[{};]|[^\s\w]")
TYPE = re.compile(r"(?:^|[;{}>:)]|\s)(?:class|struct|enum class|enum)\s+(\w+)\s*(?:final\s*)?(?::([^{;]*))?$")
NAMESPACE = re.compile(r"namespace\s+([\w:]*)\s*$")
AFTER_A_NAME = set("(;={,}")


def is_internal(header, root):
    """Whether users do not include this header: by its folder, or by what the room's CMakeLists.txt says."""
    room = header.parent / "CMakeLists.txt"
    return "internal" in header.relative_to(root).parts or (
        room.is_file() and re.search(r"lockstep_add_room\([A-Z_ ]*\bINTERNAL\b", room.read_text(encoding="utf-8")) is not None)


def public_headers(root):
    """All headers of the layers but the internal ones."""
    headers = sorted(path for layer in LAYERS for path in (root / layer).rglob("*.h"))
    return [path for path in headers if not is_internal(path, root)]


class DeclaredNames:
    """`members[None]` are the names of the namespace lockstep, `members[type]` those of a type, `bases[type]` its bases."""

    def __init__(self, root):
        self.members = {None: set()}
        self.bases = {}
        for header in public_headers(root):
            self.read(COMMENT_OR_STRING.sub(" ", header.read_text(encoding="utf-8")))

    def has(self, name):
        """Whether `Type`, `function` or `Type::member` is declared; a member also where a base declares it."""
        type_name, _, member = name.rpartition("::")
        if not type_name:
            return name in self.members[None]
        if type_name not in self.members:
            return False
        return member in self.members[type_name] or any(self.has(f"{base}::{member}") for base in self.bases[type_name])

    def read(self, text):
        scopes = []  # of every open brace: None for the namespace lockstep, a type's name, or False for what is not looked into
        start = 0  # of the declaration that the next brace may belong to
        for match in TOKEN.finditer(text):
            token = match.group()
            if token == "{":
                scopes.append(self.scope(text[start:match.start()], scopes))
                start = match.end()
            elif token == "}":
                if scopes:
                    scopes.pop()
                start = match.end()
            elif token == ";":
                start = match.end()
            elif token[0].isalpha() or token[0] == "_":
                self.note(token, text[match.end():match.end() + 80].lstrip(), text[start:match.start()], scopes)

    def scope(self, header, scopes):
        if scopes and scopes[-1] is False:
            return False
        if namespace := NAMESPACE.search(header):
            return None if namespace.group(1) == "lockstep" and not scopes else False
        if declared := TYPE.search(header.rstrip()):
            name, bases = declared.groups()
            self.members.setdefault(name, set())
            self.bases.setdefault(name, []).extend(re.findall(r"\b([A-Z]\w*)\b(?!\s*::)", bases or ""))
            return name
        return False

    def note(self, token, after, before, scopes):
        if not scopes or scopes[-1] is False:
            return
        is_type = re.search(r"\b(?:class|struct|enum class|concept|using)\s+$", before)
        is_made_by_macro = re.search(r"\b(?:TORCH_MODULE\(|TORCH_ARG\([^()]*,)\s*$", before)
        is_argument = before.count("(") > before.count(")") or before.count("<") > before.count(">")
        if is_type or is_made_by_macro or (not is_argument and after and after[0] in AFTER_A_NAME):
            self.members[scopes[-1]].add(token)
