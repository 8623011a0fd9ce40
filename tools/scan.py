"""Refuse what must not be in this repository; run by `make lint` and in CI.

    python tools/scan.py [ROOT]

* in `src`: unpickling, `eval` and `exec`, YAML that builds objects: each can run what a file says.
  Imports and calls are read from the syntax tree, so that prose may name them.
* anywhere: addresses of package indexes, absolute paths of one machine, large files, model
  weights, notebooks with their output.

Prints one line for each finding and exits with 1, or says how much it read and exits with 0.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LARGEST_KB = 500

#: Modules that turn bytes into objects by running them.
MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}

#: Calls by their last names: the function, and the one before the dot where it matters.
CALLS = {
    ("", "eval"), ("", "exec"), ("builtins", "eval"), ("builtins", "exec"), ("torch", "load"),
    ("yaml", "load"), ("yaml", "load_all"), ("yaml", "unsafe_load"), ("yaml", "full_load"),
    ("yaml", "unsafe_load_all"), ("yaml", "full_load_all"), ("pd", "read_pickle"),
    ("pandas", "read_pickle"),
}  # fmt: skip

#: Names that are as bad when imported from their module.
IMPORTED = {(module, name) for module, name in CALLS if module and module != "builtins"}

WEIGHTS = {".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".pkl", ".pickle", ".joblib", ".h5"}

# The patterns are written so that this file does not match them itself.
INDEX = re.compile(
    r"https?://[^\s\"'<>)]*(?:/simple\b|pypi[.]|pythonhosted|artifactory|/nexus|devpi|jfrog"
    r"|conda[.]anaconda)|--(?:(?:extra-)?index[-]url[ =]|trusted[-]host|find[-]links)",
    re.IGNORECASE,
)
MACHINE = re.compile(r"(?<![\w.$}/~-])/(?:work|root|home|Users)/[\w.-]")


def files(root: Path) -> list[Path]:
    """Return the files that are, or would be, committed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    names = {name for name in listed.decode().split("\0") if name}
    return [root / name for name in sorted(names) if (root / name).is_file()]


def code(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each import or call that can run what a file says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in MODULES:
                    yield node.lineno, f"import of {alias.name}"
        elif isinstance(node, ast.ImportFrom) and node.module:
            top = node.module.partition(".")[0]
            for alias in node.names:
                if top in MODULES or (top, alias.name) in IMPORTED:
                    yield node.lineno, f"import of {node.module}.{alias.name}"
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and ("", called.id) in CALLS:
                yield node.lineno, f"call of {called.id}"
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                pair = (called.value.id, called.attr)
                if pair in CALLS:
                    yield node.lineno, f"call of {'.'.join(pair)}"
                elif called.attr == "import_module":
                    yield from _named_import(node)
            if isinstance(called, ast.Name) and called.id in {"__import__", "import_module"}:
                yield from _named_import(node)
            for keyword in node.keywords:
                value = keyword.value
                if keyword.arg == "allow_pickle" and not _is_false(value):
                    yield node.lineno, "allow_pickle"


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _named_import(node: ast.Call) -> Iterator[tuple[int, str]]:
    """Yield the import of a module that is named by a text in the call."""
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant) and str(first.value).partition(".")[0] in MODULES:
        yield node.lineno, f"import of {first.value}"


def findings(path: Path, name: str) -> Iterator[str]:
    """Yield one line for each thing in a file that must not be there."""
    size = path.stat().st_size
    if size > LARGEST_KB * 1024:
        yield f"{name}: {size // 1024} KB; files above {LARGEST_KB} KB stay out"
    if path.suffix.lower() in WEIGHTS:
        yield f"{name}: weights or pickles stay out"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if INDEX.search(line):
            yield f"{name}:{number}: address of a package index"
        if MACHINE.search(line):
            yield f"{name}:{number}: absolute path of one machine"
    if path.suffix == ".ipynb" and any(c.get("outputs") for c in json.loads(text)["cells"]):
        yield f"{name}: notebook with output; clear it"
    if path.suffix == ".py" and name.startswith("src/"):
        for number, what in sorted(code(ast.parse(text, name))):
            yield f"{name}:{number}: {what}"


def main(root: Path) -> int:
    """Scan a working tree; return the exit code."""
    seen = files(root)
    found = [line for path in seen for line in findings(path, path.relative_to(root).as_posix())]
    print("\n".join(found) if found else f"scan: {len(seen)} files, nothing that must stay out")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
