"""The graph of a payment run: read, check, ask a person where one is needed, pay, report."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from abeyance import END, START, Context, Fatal, Graph
from examples.invoices import checks, inbox, ledger, question, settlement
from examples.invoices.inbox import InputError
from examples.invoices.report import write as write_report
from examples.invoices.run import Decision, PaymentRun

graph = Graph("invoices", state=PaymentRun)


@graph.node
def read(state: PaymentRun, ctx: Context) -> dict[str, Any]:
    """Read the company's account and every invoice of the folder."""
    folder = Path(state.folder)
    try:
        company = inbox.read_company(folder)
        invoices, unreadable = inbox.read_invoices(folder)
    except InputError as error:
        raise Fatal(str(error)) from error  # another attempt would find the same folder
    ctx.logger.info("read %d invoices, %d unreadable", len(invoices), len(unreadable))
    return {"company": company, "invoices": invoices, "unreadable": unreadable}


@graph.node
def check(state: PaymentRun, ctx: Context) -> dict[str, Any]:
    """Fix what would be paid, and say what of it needs a person."""
    company = state.payer()
    try:
        suppliers = inbox.read_suppliers(Path(state.folder))
    except InputError as error:
        raise Fatal(str(error)) from error
    verdicts = checks.check(
        state.invoices,
        company=company,
        suppliers=suppliers,
        paid=ledger.paid(Path(state.out)),
    )
    ctx.logger.info(
        "%d of %d need a person", sum(bool(v.concerns) for v in verdicts), len(verdicts)
    )
    return {
        "verdicts": verdicts,
        "headline": question.headline(verdicts, currency=company.currency),
        "concerns": question.concerns(verdicts, state.unreadable),
    }


@graph.node
def pay(state: PaymentRun, ctx: Context) -> dict[str, Any]:
    """Book the payments and write the file for the bank, once for each idempotency key."""
    made = settlement.pay(state, key=ctx.idempotency_key, run_id=ctx.run_id, now=datetime.now(UTC))
    return {"paid": made.paid, "payment_file": made.payment_file}


@graph.node
def reject(state: PaymentRun, ctx: Context) -> dict[str, Any]:
    """Write down what was not paid because a person said no."""
    said = state.decision.reason if state.decision else ""
    return _hold_back(state, ctx, f"rejected: {said}" if said else "rejected, no reason given")


@graph.node
def hold(state: PaymentRun, ctx: Context) -> dict[str, Any]:
    """Write down what was not paid because nobody answered in time."""
    return _hold_back(state, ctx, "nobody answered before the deadline")


@graph.node
def report(state: PaymentRun, ctx: Context) -> dict[str, Any]:
    """Write the report, whatever the end was."""
    write_report(state, run_id=ctx.run_id, outcome=str(ctx.outcome))
    return {}


def _hold_back(state: PaymentRun, ctx: Context, why: str) -> dict[str, Any]:
    now = datetime.now(UTC)
    settlement.hold_back(state, why, key=ctx.idempotency_key, run_id=ctx.run_id, now=now)
    return {}


def after_check(state: PaymentRun) -> str:
    """Ask a person if anything needs one."""
    return "approve" if state.concerns else "pay"


def after_approve(state: PaymentRun) -> str:
    """Do what the person said."""
    return "pay" if state.decision is not None and state.decision.approved else "reject"


graph.interrupt(
    "approve",
    prompt="{headline}\n{concerns}",
    response=Decision,
    answer_to="decision",
    requested_capability="payments:approve",
    timeout="P2D",
    on_timeout="goto:hold",
)
graph.edge(START, "read")
graph.edge("read", "check")
graph.route("check", after_check, to=["approve", "pay"])
graph.route("approve", after_approve, to=["pay", "reject"])
graph.edge("pay", END)
graph.edge("reject", END)
graph.edge("hold", END)
graph.finally_("report")
