"""What an import did, or would do."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from app.transfer.opencode.records import Problem


class ImportOutcome(StrEnum):
    """What becomes of one session of the source."""

    IMPORTED = "imported"
    UPDATED = "updated: grown in OpenCode since the last import"
    UNCHANGED = "unchanged since the last import"
    CHANGED_HERE = "left alone: changed here and in OpenCode since the last import"
    DELETED_HERE = "left out: deleted here since the last import"
    EXISTS = "left alone: another session has the same id here"


@dataclass(slots=True)
class ImportReport:
    """`messages` of the sessions imported and updated; `snapshots` that were taken over, and `missing_snapshots` whose files the
    source no longer has."""

    outcomes: Counter[ImportOutcome] = field(default_factory=Counter)
    messages: int = 0
    snapshots: int = 0
    missing_snapshots: int = 0
    problems: list[Problem] = field(default_factory=list)

    def lines(self) -> list[str]:
        counts = [f"{self.outcomes[outcome]} sessions {outcome}" for outcome in ImportOutcome if self.outcomes[outcome]]
        lines = counts or ["0 sessions found"]
        lines.append(f"{self.messages} messages and {self.snapshots} snapshots imported")
        if self.missing_snapshots:
            lines.append(f"{self.missing_snapshots} snapshots are no longer there: reverts to them leave the files as they are")
        if self.problems:
            lines.append(f"{len(self.problems)} problems; what they concern was left out:")
        return lines + [f"  {problem.where}: {problem.reason}" for problem in self.problems]
