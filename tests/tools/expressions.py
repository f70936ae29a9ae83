"""Find the regular expressions of the product in its source, with the methods that apply them."""

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tools.sources import PACKAGES, ROOT

_METHODS = {"match": "match", "fullmatch": "fullmatch", "search": "search", "sub": "sub", "subn": "sub",
            "split": "sub", "findall": "sub", "finditer": "sub"}  # fmt: skip
_CALL = re.compile(rf"\bre\.(?:compile|{'|'.join(_METHODS)})\(|\blate_pattern\(")
_WORST = "search"  # for an unknown use: it restarts at each place

Expression = re.Pattern[str] | re.Pattern[bytes]


class Found(NamedTuple):
    """An expression. file: from the repository's root; place: the file and the expression's name,
    or its call's text; expression: None if its text is only known at run time; uses: methods that
    apply it."""

    file: str
    place: str
    expression: Expression | None
    uses: tuple[str, ...]


class _Source:
    def __init__(self, package: Path, path: Path) -> None:
        self.path = str(path.relative_to(ROOT))
        self.module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        self.nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))

    @functools.cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def compile_calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Yield calls of `re`'s functions and of `late_pattern`, with the name of the function."""
        for node in self.nodes:
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Attribute(ast.Name("re"), name) if name in ("compile", *_METHODS):
                    yield node, name
                case ast.Name("late_pattern") | ast.Attribute(attr="late_pattern"):
                    yield node, "compile"

    def value(self, call: ast.Call, function: str) -> Expression | None:
        """Return the compiled expression, with names from its module."""
        flags = [word for word in call.keywords if word.arg == "flags"]
        text_count = 2 if function == "compile" else 1  # others take the searched text second
        call_copy = ast.Call(
            ast.Attribute(ast.Name("re", ast.Load()), "compile", ast.Load()),
            call.args[:text_count],
            flags,
        )
        if function in ("match", "fullmatch", "search") and len(call.args) == 3:
            call_copy.args.append(call.args[2])
        module = importlib.import_module(self.module)
        try:
            expression = ast.fix_missing_locations(ast.Expression(call_copy))
            names = {**vars(module), "re": re}
            value: Expression = eval(compile(expression, self.path, "eval"), names)  # noqa: S307  our own
        except NameError:  # an argument of a function
            return None
        return value

    def name_of(self, call: ast.Call) -> str:
        """Return the variable of the compiled expression or of its bound method; "" if there is
        none."""
        parent = self.parents[call]
        if isinstance(parent, ast.Attribute):
            parent = self.parents[parent]
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return ast.unparse(parent.targets[0])
        return ""

    def uses(self) -> Iterator[tuple[str, str]]:
        """Yield names, and the methods of expressions that the module takes from them."""
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and node.attr in _METHODS:
                yield ast.unparse(node.value).rpartition(".")[2], _METHODS[node.attr]


def files_with_expressions() -> list[str]:
    """Return the files that call `re` or `late_pattern`, from the repository's root. The search of
    their text takes no parser, because each worker of the tests needs this list."""
    return [
        str(path.relative_to(ROOT))
        for _, path in _paths()
        if _CALL.search(path.read_text("utf-8")) and path.stem != "late_pattern"
    ]


def _paths() -> Iterator[tuple[Path, Path]]:
    for package in PACKAGES:
        yield from ((package, path) for path in sorted(package.rglob("*.py")))


@functools.cache
def all_expressions() -> list[Found]:
    """Return all expressions. Parsing all sources takes seconds."""
    sources = [_Source(package, path) for package, path in _paths()]
    uses: dict[str, set[str]] = {}
    own_uses: dict[tuple[str, str], set[str]] = {}
    for source in sources:
        for name, use in source.uses():
            uses.setdefault(name, set()).add(use)
            own_uses.setdefault((source.path, name), set()).add(use)
    expressions = []
    for source in sources:
        for call, function in source.compile_calls():
            name = source.name_of(call) if function == "compile" else ""
            applied: set[str] = set()
            parent = source.parents[call]
            if function != "compile":
                applied = {_METHODS[function]}
            elif isinstance(parent, ast.Attribute):
                applied = {_METHODS[parent.attr]} if parent.attr in _METHODS else set()
            elif name:  # only its own module uses a private one
                applied = (
                    own_uses.get((source.path, name), set())
                    if name[:1] == "_"
                    else uses.get(name, set())
                )
            place = f"{source.path}:{name or ast.unparse(call)}"
            expressions.append(
                Found(
                    source.path,
                    place,
                    source.value(call, function),
                    tuple(sorted(applied or {_WORST})),
                )
            )
    return expressions
