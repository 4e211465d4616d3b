"""The mutants of a module: small changes of its source, each of which some test should notice.

A mutant is one changed node of the syntax tree. Not changed are: texts with a blank in them (they are messages, and
pinning every word of them in tests would only make them hard to improve), annotations, docstrings, ``assert``,
``strict=`` and imports. A name-like text (a file suffix, a code, a key) is changed.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

OTHER_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OTHER_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
OTHER_CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "bisect_left": "bisect_right",
    "bisect_right": "bisect_left",
    "startswith": "endswith",
    "endswith": "startswith",
}
MEANING_KEYWORDS = frozenset({"key", "reverse", "default", "side", "start"})
"""Keywords whose absence changes a call's meaning without making it an error."""

ASSERTING_KEYWORDS = frozenset({"strict"})
"""Keywords that only state a fact, as ``assert`` does."""

MODULE = "<module>"
Edit = Callable[[], None]


class Site(NamedTuple):
    """One place of a tree where something is changed.

    Attributes:
        function: qualified name of the outermost function around it; ``MODULE`` for what runs on import.
        first: first line of the statement it is in, without the statements inside of that one.
        last: last line of the same.
        line: of the changed node.
        operator: what kind of change it is.
        before: the old source of the changed node.
        after: the new one.
        edit: makes the change in the tree the site was found in.
    """

    function: str
    first: int
    last: int
    line: int
    operator: str
    before: str
    after: str
    edit: Edit


class Mutant(NamedTuple):
    """One mutant of a module.

    Attributes:
        id: of the module, the function, the statement and the change; it outlives changes elsewhere in the file.
        path: of the file.
        number: of the site in the order of ``sites``.
        site: what it is.
    """

    id: str
    path: str
    number: int
    site: Site


def _set(parent: ast.AST, field: str, index: int | None, new: Any) -> Edit:
    def edit() -> None:
        if index is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[index] = new

    return edit


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


class _Sites:
    """Walks a tree and collects its sites."""

    def __init__(self) -> None:
        self.found: list[Site] = []
        self.names: list[str] = []
        self.functions: list[str] = []
        self.lines = (1, 1)

    # -- what to change ----------------------------------------------------------------------------------------------

    def note(self, node: ast.AST, operator: str, before: str, after: str, edit: Edit) -> None:
        function = self.functions[0] if self.functions else MODULE
        line = getattr(node, "lineno", self.lines[0])
        self.found.append(Site(function, *self.lines, line, operator, before, after, edit))

    def replace(
        self, operator: str, parent: ast.AST, field: str, index: int | None, old: ast.AST, new: ast.AST
    ) -> None:
        self.note(
            old, operator, _text(old), _text(new), _set(parent, field, index, ast.copy_location(new, old))
        )

    def expression(self, node: ast.expr, parent: ast.AST, field: str, index: int | None) -> None:
        """All changes of one expression itself, not of those inside of it."""
        put = (parent, field, index, node)
        if isinstance(node, ast.Compare):
            for number, operator in enumerate(node.ops):
                for other in OTHER_COMPARISONS[type(operator)]:
                    new = copy.deepcopy(node)
                    new.ops[number] = other()
                    self.replace("comparison", *put, new)
        elif isinstance(node, ast.BoolOp):
            for number in range(len(node.values)):
                left = [value for place, value in enumerate(node.values) if place != number]
                self.replace(
                    "operand dropped", *put, left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
                )
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.replace("not dropped", *put, node.operand)
        elif isinstance(node, ast.BinOp) and not _is_text(node.left) and not _is_text(node.right):
            if type(node.op) in OTHER_ARITHMETIC:
                new_op = OTHER_ARITHMETIC[type(node.op)]()
                self.replace("arithmetic", *put, ast.BinOp(node.left, new_op, node.right))
        elif isinstance(node, ast.IfExp):
            self.replace("branch", *put, node.body)
            self.replace("branch", *put, node.orelse)
        elif isinstance(node, ast.Constant):
            self.constant(node, put)
        elif isinstance(node, ast.JoinedStr):
            self.joined(node, put)
        elif isinstance(node, ast.Call):
            self.call(node, put)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            for bound in ("lower", "upper"):
                if getattr(node.slice, bound) is not None:
                    cut = copy.deepcopy(node)
                    setattr(cut.slice, bound, None)
                    self.replace("bound dropped", *put, cut)

    def constant(self, node: ast.Constant, put: tuple[Any, ...]) -> None:
        value = node.value
        if isinstance(value, bool):
            self.replace("constant", *put, ast.Constant(not value))
        elif isinstance(value, int | float):
            self.replace("constant", *put, ast.Constant(value + 1))
        elif isinstance(value, str) and value and not any(character.isspace() for character in value):
            self.replace("text", *put, ast.Constant(value + "~"))
        elif isinstance(value, bytes) and value:
            self.replace("text", *put, ast.Constant(value + b"~"))

    def joined(self, node: ast.JoinedStr, put: tuple[Any, ...]) -> None:
        texts = [part.value for part in node.values if isinstance(part, ast.Constant)]
        if any(character.isspace() for text in texts for character in text):
            return
        self.replace("text", *put, ast.JoinedStr([*node.values, ast.Constant("~")]))

    def call(self, node: ast.Call, put: tuple[Any, ...]) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in OTHER_CALLS:
            new = copy.deepcopy(node)
            if isinstance(new.func, ast.Attribute):
                new.func.attr = OTHER_CALLS[name]
            elif isinstance(new.func, ast.Name):
                new.func.id = OTHER_CALLS[name]
            if name not in {"bisect_left", "bisect_right"} or isinstance(new.func, ast.Attribute):
                self.replace("other call", *put, new)
        for number, keyword in enumerate(node.keywords):
            if keyword.arg in MEANING_KEYWORDS:
                new = copy.deepcopy(node)
                del new.keywords[number]
                self.replace("keyword dropped", *put, new)

    def condition(
        self, node: ast.expr, parent: ast.AST, field: str, index: int | None, *, loops: bool
    ) -> None:
        for value in (False,) if loops else (True, False):
            self.replace("condition", parent, field, index, node, ast.Constant(value))

    def statement(self, node: ast.stmt, body: list[ast.stmt], index: int) -> None:
        nothing = ast.copy_location(ast.Pass(), node)

        def remove() -> None:
            body[index] = nothing

        removable = isinstance(
            node, ast.Expr | ast.Raise | ast.AugAssign | ast.Delete | ast.Continue | ast.Break
        )
        if isinstance(node, ast.Assign):
            removable = all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            removable = False
        if removable:
            self.note(node, "statement removed", _text(node), "pass", remove)
        if isinstance(node, ast.AugAssign) and type(node.op) in OTHER_ARITHMETIC and not _is_text(node.value):
            new = copy.deepcopy(node)
            new.op = OTHER_ARITHMETIC[type(node.op)]()
            self.note(node, "arithmetic", _text(node), _text(new), _set_in(body, index, new))
        if isinstance(node, ast.Try) and node.finalbody:
            new_try = copy.deepcopy(node)
            new_try.finalbody = [nothing]
            self.note(
                node, "finally dropped", _text(node.finalbody[0]), "pass", _set_in(body, index, new_try)
            )
        if isinstance(node, ast.With) and "suppress(" in _text(node.items[0]):
            plain = ast.copy_location(ast.If(ast.Constant(True), node.body, []), node)
            self.note(node, "suppress dropped", _text(node.items[0]), "nothing", _set_in(body, index, plain))

    # -- where to look -----------------------------------------------------------------------------------------------

    def body(self, statements: list[ast.stmt]) -> None:
        for index, node in enumerate(statements):
            outer = self.lines
            self.lines = _header_lines(node)
            self.visit_statement(node, statements, index)
            self.lines = outer

    def visit_statement(self, node: ast.stmt, body: list[ast.stmt], index: int) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Global | ast.Nonlocal):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.function(node)
            return
        if isinstance(node, ast.ClassDef):
            self.names.append(node.name)
            self.body(node.body)
            self.names.pop()
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in _text(node.test):
            return
        if isinstance(node, ast.Assign) and any(_text(target).startswith("__") for target in node.targets):
            return
        self.statement(node, body, index)
        if isinstance(node, ast.If | ast.While):
            self.condition(node.test, node, "test", None, loops=isinstance(node, ast.While))
        self.children(node)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        for number, default in enumerate(arguments.defaults):
            self.visit(default, arguments, "defaults", number)
        for number, default_or_none in enumerate(arguments.kw_defaults):
            if default_or_none is not None:
                self.visit(default_or_none, arguments, "kw_defaults", number)
        self.names.append(node.name)
        self.functions.append(".".join(self.names))
        self.body(node.body)
        self.functions.pop()
        self.names.pop()

    def children(self, node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns", "decorator_list", "ctx"}:
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self.body(value)
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if not (isinstance(item, ast.keyword) and item.arg in ASSERTING_KEYWORDS):
                        self.child(item, node, field, index)
            else:
                self.child(value, node, field, None)

    def child(self, item: Any, parent: ast.AST, field: str, index: int | None) -> None:
        if isinstance(item, ast.expr):
            if isinstance(parent, ast.comprehension) and field == "ifs":
                self.condition(item, parent, field, index, loops=False)
            self.visit(item, parent, field, index)
        elif isinstance(item, ast.ExceptHandler):
            self.handler(item)
        elif isinstance(item, ast.AST):
            self.children(item)

    def handler(self, node: ast.ExceptHandler) -> None:
        outer, self.lines = self.lines, (node.lineno, node.body[0].lineno)
        if not isinstance(node.body[0], ast.Raise):

            def raise_again() -> None:
                node.body = [ast.copy_location(ast.Raise(), node.body[0])]

            self.note(node, "handler dropped", _text(node.type) if node.type else "", "raise", raise_again)
        self.lines = outer
        self.body(node.body)

    def visit(self, node: ast.expr, parent: ast.AST, field: str, index: int | None) -> None:
        if isinstance(node, ast.Constant) and isinstance(parent, ast.Expr):
            return  # a docstring
        self.expression(node, parent, field, index)
        if not isinstance(node, ast.JoinedStr):
            self.children(node)


def _set_in(body: list[ast.stmt], index: int, new: ast.stmt) -> Edit:
    def edit() -> None:
        body[index] = new

    return edit


def _header_lines(node: ast.stmt) -> tuple[int, int]:
    inner = [
        part[0].lineno
        for _, part in ast.iter_fields(node)
        if isinstance(part, list) and part and isinstance(part[0], ast.stmt)
    ]
    last = min(inner) - 1 if inner else (node.end_lineno or node.lineno)
    return node.lineno, max(node.lineno, last)


def sites(tree: ast.Module) -> list[Site]:
    """Every site of a module, in the order of its source; the edits are for this very tree."""
    found = _Sites()
    found.body(tree.body)
    return found.found


def mutants(source: str, path: str, module: str) -> list[Mutant]:
    """Every mutant of a module.

    Args:
        source: of the module.
        path: of its file, as it is to be told.
        module: its dotted name.
    """
    tree = ast.parse(source)
    lines = source.splitlines()
    seen: Counter[str] = Counter()
    found = []
    for number, site in enumerate(sites(tree)):
        statement = "\n".join(line.strip() for line in lines[site.first - 1 : site.last])
        key = "\0".join((site.function, statement, site.operator, site.before, site.after))
        seen[key] += 1
        digest = hashlib.sha256(f"{key}\0{seen[key]}".encode()).hexdigest()[:8]
        found.append(Mutant(f"{module}:{site.function}:{digest}", path, number, site))
    return found


def mutated(source: str, number: int) -> ast.Module:
    """The tree of a module with the site of this number changed."""
    tree = ast.parse(source)
    sites(tree)[number].edit()
    return ast.fix_missing_locations(tree)


def changed_lines(source: str, number: int) -> Iterator[str]:
    """The change as a reader wants it: the old lines of the statement, then what is new."""
    site = sites(ast.parse(source))[number]
    for line in source.splitlines()[site.first - 1 : site.last]:
        yield f"  {line}"
    yield f"  # line {site.line}, {site.operator}: {site.before}  ->  {site.after}"
