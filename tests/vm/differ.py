# SPDX-License-Identifier: GPL-2.0
"""Answers that differ between C RDS and this module on purpose."""

from dataclasses import dataclass


@dataclass
class Differ:
    c: object
    rust: object
    reason: str


def single(c, rust, path=()):
    """Yields each answer that differs: its place, the answer of C RDS and that of this module."""
    if isinstance(c, dict) and isinstance(rust, dict) and c.keys() == rust.keys():
        pairs = [(key, c[key], rust[key]) for key in c]
    elif isinstance(c, list | tuple) and isinstance(rust, list | tuple) and len(c) == len(rust):
        pairs = [(i, *x) for i, x in enumerate(zip(c, rust, strict=True), 1)]
    else:
        pairs = []
        if c != rust:
            yield path, c, rust
    for key, its, ours in pairs:
        yield from single(its, ours, (*path, str(key)))


def differing(answers, path=()):
    """Yields each answer of a case, or of a part of it, that differs: place, both answers and
    reason."""
    if isinstance(answers, Differ):
        for where, its, ours in single(answers.c, answers.rust, path):
            yield where, its, ours, answers.reason
    elif isinstance(answers, dict):
        for key, part in answers.items():
            yield from differing(part, (*path, str(key)))


def table(expected):
    """Returns rows for Documentation/abi.md: the answers of C RDS and of this module, and the
    reason."""
    rows = []
    for case, answers in expected.items():
        places = {}
        for path, its, ours, reason in differing(answers):
            places.setdefault((repr(its), repr(ours), reason), []).append(".".join(path))
        for (its, ours, reason), where in places.items():
            rows.append(f"| `{case}` | {', '.join(x for x in where if x)} | `{its}` | `{ours}` | {reason} |")
    return rows
