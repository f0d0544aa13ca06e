"""Many evaluations, in many threads, and without the library."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from abeyance.contrib.clips.engine import ClipsRule, evaluate
from abeyance.core.spec import Assert, Retract

RULES = [
    ClipsRule(
        id="first",
        when="?f <- (a (value ?v)) (not (b (value ?v)))",
        changes=(Assert(fact="(seen (by ?v))"), Retract(fact="?f")),
    ),
    ClipsRule(id="second", when="(seen (by ?v)) (c (value ?v))"),
    ClipsRule(id="third", when='(a (value "0"))'),
]

BUILT = """
import sys
sys.modules["clips"] = None
import abeyance

graph = abeyance.Graph("g")
graph.interrupt("gate")
graph.edge(abeyance.START, "gate")
ask = {"kind": "interrupt", "prompt": "Go?"}
graph.rule("r", when="?n <- (node-id (id gate))", then=[ask])
graph.build()
print("built")
graph.rule("large", when="(amount (value ?a))", then=[{"kind": "halt"}])
try:
    graph.build()
except abeyance.GraphError as error:
    print(*error.faults)
"""

UNUSED = """
import sys
from abeyance.contrib.clips.engine import evaluate
evaluate([], node="work", values={})
print("clips" in sys.modules)
"""

MANY = """
import resource
from abeyance.contrib.clips.engine import ClipsRule, evaluate
from abeyance.authoring.routers import RouterError
rules = [ClipsRule(id=str(n), when="(a (value ?v)) (test (numberp ?v))") for n in range(20)]
wrong = [ClipsRule(id="wrong", when="(a (value ?v)) (test (> (string-to-field ?v) 1))")]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
def some(count):
    for number in range(count):
        evaluate(rules, node="work", values={"a": f"x{number}" * 5000})
        try:
            evaluate(wrong, node="work", values={"a": f"x{number}" * 5000})
        except RouterError:
            pass
some(20)
before = peak()
some(100)
print(peak() - before)
"""


def output_of(program: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    return ran.stdout.strip()


def test_a_missing_library_is_a_fault_only_of_rules_that_need_it() -> None:
    built, fault = output_of(BUILT).splitlines()

    assert built == "built"
    assert fault.startswith(
        "the rule 'large' has CLIPS text as its condition: pip install 'abeyance[rules]' ("
    )


def test_the_library_is_not_imported_before_there_is_something_to_evaluate() -> None:
    assert output_of(UNUSED) == "False"


def test_a_hundred_evaluations_leave_no_memory_behind() -> None:
    assert int(output_of(MANY)) < 4, "megabytes"


def test_threads_evaluate_at_the_same_time_without_seeing_each_other() -> None:
    def fired(number: int) -> tuple[str, ...]:
        values = {"a": number % 3, "b": 1, "c": number % 2 * 2}
        return evaluate(RULES, node="work", values=values)

    both = ("first", "second")
    alone = [fired(number) for number in range(6)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(fired, range(180)))

    assert alone == [both, (), ("first",), ("first",), (), both]
    assert together == alone * 30
