# SPDX-License-Identifier: GPL-2.0
"""Finds the strings that a test checks.

These are the strings in the asserts of a test, and in the checks of the programs that it runs in
guests. Strings in the expressions that define the names in such a check count, too. The search
walks syntax trees: it may find a string too many, but none that has nothing to do with a check.
"""

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

VM = Path(__file__).resolve().parents[2] / "tests/vm"
# Functions that end a test, or a program, unless their arguments are as they should be.
CHECKS = {"need", "errors", "wait_for", "eventually", "until_risen"}
# A check that counters have not counted.
SPARED = "unchanged"
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


@dataclass
class Module:
    """A file: its top-level names, its imported names, and the statements that run it."""

    path: Path
    names: dict = field(default_factory=dict)
    imports: dict = field(default_factory=dict)
    main: list = field(default_factory=list)


@cache
def module(path):
    made = Module(path)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, DEFINITIONS):
            made.names[node.name] = node
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            made.names |= dict.fromkeys(bound(node.targets[0]), node.value)
        elif isinstance(node, ast.Import):
            made.imports |= {x.asname or x.name: (x.name, None) for x in node.names}
        elif isinstance(node, ast.ImportFrom):
            made.imports |= {x.asname or x.name: (node.module, x.name) for x in node.names}
        else:
            made.main.append(node)
    return made


@cache
def beside(path, name):
    """Returns the module of that name in the same folder; None for one of Python's."""
    found = path.with_name(f"{name}.py")
    return module(found) if found.exists() else None


@cache
def children(node):
    return list(ast.iter_child_nodes(node))


@cache
def walked(tree):
    """Returns all nodes of a piece of code except decorators, which have all cases' parameters."""
    found, left = [], [tree]
    while left:
        node = left.pop()
        found.append(node)
        decorators = getattr(node, "decorator_list", ())
        left += [x for x in children(node) if x not in decorators]
    return found


def of_kind(kind, tree):
    return [x for x in walked(tree) if isinstance(x, kind)]


@cache
def strings(tree):
    return {x.value for x in of_kind(ast.Constant, tree) if isinstance(x.value, str)}


@cache
def used(tree):
    """Returns (name, "") for the names in a piece of code, and (module, attribute) pairs."""
    attributes = of_kind(ast.Attribute, tree)
    found = {(x.value.id, x.attr) for x in attributes if isinstance(x.value, ast.Name)}
    return sorted(found | {(x.id, "") for x in of_kind(ast.Name, tree)})


def is_table(node):
    """True for a table of functions, of which the argument of a program selects one."""
    return (
        isinstance(node, ast.Dict)
        and bool(node.keys)
        and all(isinstance(x, ast.Constant) for x in node.keys)
        and all(isinstance(x, (ast.Name, ast.Lambda)) for x in node.values)
    )


def is_case(node):
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(x, ast.Name) and x.id == "case" for x in node.decorator_list
    )


class Reach:
    """Pieces of code that can be reached from given ones, each with its module.

    keys: strings that select functions of tables, cases, and functions by name. params: the
    parameters of the test."""

    def __init__(self, keys=(), params=()):
        self.keys, self.params, self.found = set(keys), dict(params), {}

    def add(self, where, node):
        if id(node) in self.found:
            return self
        self.found[id(node)] = where, node
        for name, attribute in used(node):
            self.follow(where, name, attribute)
        return self

    def follow(self, where, name, attribute):
        if name in where.names:
            self.enter(where, name)
        elif name in where.imports:
            source, imported = where.imports[name]
            other = beside(where.path, source)
            if other and (imported or attribute) in other.names:
                self.enter(other, imported or attribute)

    def enter(self, where, name):
        node = where.names[name]
        if is_table(node):
            for key, value in zip(node.keys, node.values):
                if key.value in self.keys:
                    self.add(where, value)
        elif not is_case(node) or name in self.keys:
            self.add(where, node)

    def program(self, path):
        """Adds all code that a program runs."""
        where = module(path)
        for node in where.main:
            self.add(where, node)
        sources = {source for source, _ in where.imports.values()}
        cases = {}
        for each in (where, *filter(None, (beside(path, x) for x in sources))):
            cases |= {name: node for name, node in each.names.items() if is_case(node)}
        # A program without arguments plays all of its cases.
        chosen = {name: node for name, node in cases.items() if name in self.keys} or cases
        for name, node in where.names.items():
            if isinstance(node, ast.FunctionDef) and not is_case(node) and name in self.keys:
                chosen[name] = node
        for node in chosen.values():
            self.add(where, node)
        return self


def called(call):
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


@cache
def calls(piece):
    return [x for x in of_kind(ast.Call, piece) if called(x) != SPARED]


@cache
def checks(piece):
    """Returns the expressions that are checked in a piece of code."""
    found = [x.test for x in of_kind(ast.Assert, piece)]
    for call in of_kind(ast.Call, piece):
        if called(call) in CHECKS:
            found += [*call.args, *(x.value for x in call.keywords)]
    if is_case(piece):
        # The test of the program checks the returned value.
        found += [x.value for x in of_kind(ast.Return, piece) if x.value]
    return found


def bound(target):
    return {x.id for x in of_kind(ast.Name, target)}


@cache
def bindings(piece):
    """Returns {name: expressions that a piece of code assigns to it, or iterates with it}."""
    found = {}
    for x in walked(piece):
        targets, value = (), None
        if isinstance(x, ast.Assign):
            targets, value = x.targets, x.value
        elif isinstance(x, (ast.AugAssign, ast.NamedExpr)):
            targets, value = [x.target], x.value
        elif isinstance(x, (ast.For, ast.comprehension)):
            targets, value = [x.target], x.iter
        elif isinstance(x, ast.withitem) and x.optional_vars:
            targets, value = [x.optional_vars], x.context_expr
        for name in set().union(*map(bound, targets)):
            found.setdefault(name, []).append(value)
    return found


@cache
def signatures(piece):
    """Returns {parameter: (function, position) of each function in a piece of code with it}."""
    found = {}
    for x in of_kind(ast.FunctionDef, piece):
        names = [a.arg for a in (*x.args.posonlyargs, *x.args.args)]
        if names[:1] == ["self"]:
            del names[0]
        for index, name in enumerate(names):
            found.setdefault(name, []).append((x.name, index))
        if x.args.vararg:
            rest = slice(len(names), None)
            found.setdefault(x.args.vararg.arg, []).append((x.name, rest))
    return found


def arguments(call, index, name):
    if isinstance(index, slice):
        return call.args[index]
    if index < len(call.args):
        return [call.args[index]]
    return [x.value for x in call.keywords if x.arg == name]


def is_zero(node):
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0


def key_of(piece, node):
    """Returns the counter that an expression reads, if it does nothing else; or None."""
    if isinstance(node, ast.Name):
        values = bindings(piece).get(node.id, ())
        if len(values) != 1 or isinstance(values[0], ast.Name):
            return None
        node = values[0]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value
    return None


def is_unchanged(piece, node):
    """True for a comparison with 0, or of a counter with an older value of it."""
    if not all(isinstance(x, ast.Eq) for x in node.ops):
        return False
    sides = [node.left, *node.comparators]
    keys = [key_of(piece, x) for x in sides]
    return any(map(is_zero, sides)) or None not in keys and len(set(keys)) == 1


class Checked:
    """The strings of all checks in the reached pieces of code."""

    def __init__(self, reach):
        self.reach, self.strings, self.seen, self.calls = reach, set(), set(), {}
        pieces = list(reach.found.values())
        for where, piece in pieces:
            for x in calls(piece):
                self.calls.setdefault(called(x), []).append((where, piece, x))
        for where, piece in pieces:
            for x in checks(piece):
                self.take(where, piece, x)

    def take(self, where, piece, node):
        """Adds the strings of an expression, and those in the definitions of its names."""
        if id(node) in self.seen:
            return
        self.seen.add(id(node))
        if isinstance(node, ast.Compare) and is_unchanged(piece, node):
            return
        if isinstance(node, ast.Call) and called(node) == SPARED:
            return
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                self.strings.add(node.value)
        elif isinstance(node, ast.Name):
            self.take_name(where, piece, node.id)
        else:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                self.take_imported(where, node.value.id, node.attr)
            for x in self.parts(where, node):
                self.take(where, piece, x)

    def parts(self, where, node):
        """Returns the parts of an expression, without counters of a table that must be 0."""
        if isinstance(node, ast.Subscript) and (picked := self.picked(where, node)):
            return picked
        if isinstance(node, ast.Dict):
            pairs = [x for x in zip(node.keys, node.values) if not is_zero(x[1])]
            return [x for pair in pairs for x in pair if x]
        return children(node)

    def picked(self, where, node):
        """Returns a list with the entry of a table that a parameter of the test selects."""
        if not (isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Name)):
            return []
        table = where.names.get(node.value.id)
        key = self.reach.params.get(node.slice.id)
        if not isinstance(table, ast.Dict) or key is None:
            return []
        pairs = zip(table.keys, table.values)
        return [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key]

    def take_name(self, where, piece, name):
        for value in bindings(piece).get(name, ()):
            self.take(where, piece, value)
        for function, index in signatures(piece).get(name, ()):
            for there, other, call in self.calls.get(function, ()):
                for argument in arguments(call, index, name):
                    self.take(there, other, argument)
        node = where.names.get(name)
        if node and not isinstance(node, DEFINITIONS) and id(node) in self.reach.found:
            self.take(where, node, node)
        self.take_imported(where, name, None)

    def take_imported(self, where, name, attribute):
        source, imported = where.imports.get(name, (None, None))
        other = source and beside(where.path, source)
        node = other and other.names.get(imported or attribute)
        if node and not isinstance(node, DEFINITIONS):
            self.take(other, node, node)


def fixture(where, name):
    """Returns the fixture of that name, with its module; None if it is one of pytest."""
    for place in (where, module(VM / "conftest.py")):
        if isinstance(place.names.get(name), ast.FunctionDef):
            return place, place.names[name]
    return None


@cache
def keys_of_programs():
    """Returns all strings that may select a function of a program."""
    found = set()
    for path in (VM / "guest").glob("*.py"):
        for name, node in module(path).names.items():
            if isinstance(node, ast.FunctionDef):
                found.add(name)
            elif is_table(node):
                found |= strings(node)
    return found


@cache
def of_programs(names, keys):
    reach = Reach(keys=keys)
    for name in sorted(names):
        reach.program(VM / "guest" / name)
    return Checked(reach).strings


def of_item(item):
    """Returns the strings that a test checks; item: one of collect.py."""
    where = module(VM / item.file)
    reach = Reach(params=item.params).add(where, where.names[item.function])
    for place, node in filter(None, (fixture(where, x) for x in item.fixtures)):
        reach.add(place, node)
    named = set(dict(item.params).values())
    for _, node in reach.found.values():
        # A table has the names of all cases.
        if not isinstance(node, ast.Dict):
            named |= strings(node)
    programs = frozenset(x for x in named if (VM / "guest" / x).suffix == ".py" and is_program(x))
    return Checked(reach).strings | of_programs(programs, frozenset(named & keys_of_programs()))


@cache
def is_program(name):
    return (VM / "guest" / name).is_file()
