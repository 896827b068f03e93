# SPDX-License-Identifier: GPL-2.0
"""The ledger of known flakes, tests/flakes.toml: intermittent failures with a known cause.

Each entry has a name, a cause, and a way to recognize the failure. That is a signature: the name of
an exception that the harness raises when the environment fails. Or it is a test and a regular
expression for the text of its failure. A failure that is not in the ledger is red, even if it does
not come again.

# Errors

Raises ValueError if an entry is not of that form.
"""

import re
import tomllib
from dataclasses import dataclass


@dataclass(frozen=True)
class Flake:
    name: str
    cause: str
    signature: str | None = None
    test: str | None = None
    error: str | None = None

    def matches(self, test, text, signature):
        if self.signature:
            return signature == self.signature
        return bool(re.fullmatch(self.test, test) and re.search(self.error, text))


def read(text):
    """Returns the entries of a ledger."""
    flakes = []
    for entry in tomllib.loads(text).get("flake", []):
        try:
            flake = Flake(**entry)
        except TypeError as e:
            raise ValueError(f"flakes.toml: {entry.get('name', entry)}: {e}") from e
        if bool(flake.signature) == bool(flake.test and flake.error) or bool(flake.test) != bool(
            flake.error
        ):
            raise ValueError(
                f"flakes.toml: {flake.name}: needs either a signature or a test and an error"
            )
        if len(flake.cause.split()) < 5:
            raise ValueError(f"flakes.toml: {flake.name}: the cause says nothing")
        flakes.append(flake)
    return flakes


def known(flakes, test, text, failure):
    """Returns the entry that a failure matches, if there is one and it may be excused.

    failure: "signature" and "final", as tests/conftest.py records them."""
    if failure.get("final"):
        return None
    return next((x for x in flakes if x.matches(test, text, failure.get("signature"))), None)
