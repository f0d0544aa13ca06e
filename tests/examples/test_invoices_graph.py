"""The graph of the payment run holds together, and sends each run the right way."""

from examples.invoices.graph import after_approve, after_check, graph
from examples.invoices.run import Decision, PaymentRun

RUN = PaymentRun(folder="in", out="out")


def test_the_graph_has_no_faults_and_reports_after_every_end() -> None:
    spec = graph.build()

    assert spec.finally_nodes == ("report",)
    assert spec.nodes.keys() == {"read", "check", "approve", "pay", "reject", "hold", "report"}


def test_a_person_is_asked_only_when_something_needs_one() -> None:
    assert after_check(RUN) == "pay"
    assert after_check(RUN.model_copy(update={"concerns": "- 04: over the limit"})) == "approve"


def test_only_an_approval_leads_to_a_payment() -> None:
    def after(decision: Decision | None) -> str:
        return after_approve(RUN.model_copy(update={"decision": decision}))

    assert after(Decision(approved=True)) == "pay"
    assert after(Decision(approved=False, reason="no")) == "reject"
    assert after(None) == "reject"
