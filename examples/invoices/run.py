"""The state of a payment run: what goes in, what its nodes find out, what comes out."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from examples.invoices.checks import Verdict
from examples.invoices.inbox import Company, Unreadable
from examples.invoices.ubl import Invoice


class Decision(BaseModel):
    """A person's answer: whether the payments may be made, and why."""

    model_config = ConfigDict(extra="forbid")

    approved: bool
    reason: str = ""


class PaymentRun(BaseModel):
    """Everything that is known of a payment run. Only the first two fields are input."""

    folder: str = Field(min_length=1)
    """Folder with the invoices, `suppliers.csv` and `company.toml`."""
    out: str = Field(min_length=1)
    """Folder that everything is written into; it is made if it is not there."""

    company: Company | None = None
    invoices: list[Invoice] = []
    unreadable: list[Unreadable] = []
    verdicts: list[Verdict] = []
    headline: str = ""
    """What an approval does, in one line."""
    concerns: str = ""
    """What needs a person, in words; empty when nothing does."""
    decision: Decision | None = None
    payment_file: str = ""
    """Name of the payment file in `out`, once it is written."""
    paid: int = 0
    """How many invoices this run has paid."""

    def payer(self) -> Company:
        """Return who pays.

        Raises:
            ValueError: the node that reads it from the folder has not run.
        """
        if self.company is None:
            raise ValueError("the run does not know who pays; its first node must read the folder")
        return self.company
