"""Errors a user can act on. Each says what is wrong, where, and what to do; the command line prints it as one line."""

import difflib
from collections.abc import Iterable


class FscilError(Exception):
    """The command ran and failed: a damaged file, a full disk, a number that moved."""

    exit_code = 1


class UsageError(FscilError):
    """The call or its input was wrong: an unknown name, a missing folder, a setting of the wrong type."""

    exit_code = 2


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> UsageError:
    """The error for a `name` that is not among the `known` ones, with the nearest of them."""
    choices = sorted(known)
    near = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.5)
    guess = f"did you mean '{near[0]}'? " if near else ""
    listing = ", ".join(choices) if choices else "none"
    return UsageError(f"unknown {kind} '{name}': {guess}known: {listing}{'. ' + hint if hint else ''}")
