# SPDX-License-Identifier: GPL-2.0
"""Finds files of a folder of the module that import each other.

A folder can be read in an order in which each file uses only earlier ones, unless its files import
each other in a cycle. A subfolder counts as one file here; its own files are checked as well. The
root of a folder, `mod.rs`, is not counted: it lists the others.
"""

import re
from pathlib import PurePosixPath

import checks

# Folders with files that still import each other.
EXCEPTIONS = {
    # A connection has its node and a path, and the node has connections and transports. A path has
    # a link. Transports and links take the node or the connection.
    "conn": {"connection", "node", "path", "transport", "transports"},
}

USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]*);")
PATH = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*\w+)+")


def module_of(path):
    """Returns the path of the module in a file, as a tuple of names."""
    parts = PurePosixPath(path).with_suffix("").parts
    return parts[:-1] if parts[-1] == "mod" else parts


def leaves(tree):
    """Returns the paths in a `use` tree: `a::{b, c::d}` has a::b and a::c::d. `self` at the end is
    the module itself."""
    tree = re.sub(r"\bas\s+\w+|\s+", "", tree)
    found, prefixes, prefix, name = [], [], (), ""
    for part in re.findall(r"::|[{},]|[^:{},]+", tree + ","):
        if part == "::":
            prefix, name = (*prefix, name), ""
        elif part == "{":
            prefixes.append(prefix)
        elif part in ",}":
            if name:
                found.append(prefix if name == "self" and prefix else (*prefix, name))
            prefix, name = prefixes[-1] if prefixes else (), ""
            if part == "}":
                prefixes.pop()
                prefix = prefixes[-1] if prefixes else ()
        else:
            name = part
    return found


class Imports:
    """The imports between the files of the module. `sources` maps paths to texts."""

    def __init__(self, sources):
        self.codes = {module_of(path): checks.code_of(text) for path, text in sources.items() if checks.layer_of(path)}
        self.paths = {module_of(path): path for path in sources if checks.layer_of(path)}
        self.reexports = {}
        for module, code in self.codes.items():
            for public, tree in USE.findall(code):
                for leaf in leaves(tree) if public else ():
                    if full := self.absolute(module, leaf):
                        self.reexports[(*module, leaf[-1])] = full
        self.edges = {module: set(self.used(module)) for module in self.codes}

    def absolute(self, module, path):
        """Returns a path from the root of the crate, or None if it leads out of the module."""
        if path[0] == "crate":
            return path[1:]
        if path[0] in ("super", "self"):
            base = module
            while path and path[0] in ("super", "self"):
                base, path = base[: len(base) - (path[0] == "super")], path[1:]
            return (*base, *path)
        return (*module, *path) if (*module, path[0]) in self.codes else None

    def file_of(self, path):
        """Returns the module whose file defines what a path names."""
        for _ in range(10):
            known = [path[:n] for n in range(len(path), 0, -1) if path[:n] in self.codes or path[:n] in self.reexports]
            if not known or known[0] in self.codes:
                return known[0] if known else None
            path = (*self.reexports[known[0]], *path[len(known[0]):])
        return None

    def used(self, module):
        """Yields the modules that a module uses."""
        code = self.codes[module]
        paths = [leaf for _, tree in USE.findall(code) for leaf in leaves(tree)]
        paths += [tuple(re.split(r"\s*::\s*", x)) for x in PATH.findall(USE.sub("", code))]
        for path in paths:
            full = self.absolute(module, path)
            if full and (target := self.file_of(full)) and target != module:
                yield target

    def folder(self, folder):
        """Returns which of the files of a folder each of them uses, by name."""
        depth = len(folder)
        inside = [m for m in self.codes if m[:depth] == folder and len(m) > depth]
        uses = {m[depth]: set() for m in inside}
        for module in inside:
            for target in self.edges[module]:
                if target[:depth] == folder and len(target) > depth and target[depth] != module[depth]:
                    uses[module[depth]].add(target[depth])
        return uses


def reachable(uses, name):
    """Returns all files that a file uses, directly or not."""
    found, todo = set(), [name]
    while todo:
        for other in uses[todo.pop()] - found:
            found.add(other)
            todo.append(other)
    return found


def cycles(sources):
    """Returns {folder: [names of files that import each other, ...]}."""
    imports, found = Imports(sources), {}
    for folder in sorted({m[:-1] for m in imports.codes if len(m) > 1}):
        uses = imports.folder(folder)
        all_of = {name: reachable(uses, name) for name in uses}
        groups = {tuple(sorted(x for x in all_of[name] if name in all_of[x])) for name in uses if name in all_of[name]}
        if groups:
            found["/".join(folder)] = sorted(groups)
    return found


def complaints(sources):
    """Returns complaints about files that import each other, except those known to do it."""
    return [f"{folder}: {', '.join(group)} import each other [import_cycles]"
            for folder, groups in cycles(sources).items() for group in groups
            if not set(group) <= EXCEPTIONS.get(folder, set())]
