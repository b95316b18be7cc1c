"""The error family: what is wrong, where, what to do next, and the exit code of the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or worth knowing about a recipe or its plan."""

    code: str
    """`PDxxx`, stable over releases."""
    severity: Severity
    message: str
    at: str
    """`file:line:col`."""
    fix: str = ""

    def __str__(self) -> str:
        fix = f"\n    fix: {self.fix}" if self.fix else ""
        return f"{self.at}: {self.severity} {self.code}: {self.message}{fix}"


class PdkitError(Exception):
    """An error that a person can act on; printed without a traceback."""

    exit_code = 2

    def __init__(self, message: str, *, at: str | None = None, fix: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        """`file:line:col` of the cause, or a file name, or None."""
        self.fix = fix
        """What to do next, as one sentence."""
        self.code = code
        """`PDxxx` when the error belongs to a catalogued kind."""

    def __str__(self) -> str:
        where = f"{self.at}: " if self.at else ""
        code = f"{self.code} " if self.code else ""
        fix = f"\n  fix: {self.fix}" if self.fix else ""
        return f"{where}{code}{self.message}{fix}"


class UsageError(PdkitError):
    """The command line asks for something that does not exist."""


class RecipeError(PdkitError):
    """The recipe, or a file that it names, cannot be read as one; carries every fault that was found."""

    def __init__(self, message: str, *, at: str | None = None, fix: str | None = None, code: str | None = None) -> None:
        super().__init__(message, at=at, fix=fix, code=code)
        self.findings: tuple[Finding, ...] = (Finding(code or "PD104", "error", message, at or "?:1:1", fix or ""),)

    @classmethod
    def of(cls, *findings: Finding) -> RecipeError:
        """An error out of one or more findings."""
        error = cls(findings[0].message, at=findings[0].at, fix=findings[0].fix, code=findings[0].code)
        error.findings = findings
        return error

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)


class FindingsError(PdkitError):
    """At least one rule found an error in the plan."""

    exit_code = 1


class ClusterError(PdkitError):
    """Slurm refused the job, or cannot be reached."""

    exit_code = 3


class EngineError(PdkitError):
    """A process of the deployment failed or died."""

    exit_code = 4


class NotReadyError(PdkitError):
    """The deployment did not prove itself ready in time."""

    exit_code = 5


class GateError(PdkitError):
    """The accuracy gate failed, so no performance may be measured."""

    exit_code = 6


class MeasurementError(PdkitError):
    """A measured point is invalid."""

    exit_code = 7


class InterruptedRunError(PdkitError):
    """A person or the scheduler interrupted the run; what was finished is kept."""

    exit_code = 8
