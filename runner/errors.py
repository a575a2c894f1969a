"""Errors that a user can mend: one line that names the file, the place, what is wrong and what to do."""

from __future__ import annotations


class UserError(Exception):
    """Bad input; exit status 2."""


class RunError(Exception):
    """The input was sound but the run failed; exit status 1."""
