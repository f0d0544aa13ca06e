"""`abeyance worker --check`, alone and against open runs."""

from __future__ import annotations

import asyncio
import socket
import sys
from importlib.metadata import metadata
from pathlib import Path
from pkgutil import iter_modules

import pytest
from command_line import Terminal
from dev_stack import Place
from foreign_office import FRAMEWORKS
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph, adapters
from abeyance.check import check_runs

GRAPHS = """\
from abeyance import START, Agent, Graph

graph = Graph("desk")
graph.agent("clerk", Agent("clerk", model="openai:gpt-5"), input=lambda state: "Hello")
graph.edge(START, "clerk")
other = Graph("other")
other.interrupt("ask", prompt="Well?")
other.edge(START, "ask")
"""
OLDER = """\
from abeyance import START, Graph

graph = Graph("expense")
graph.interrupt("ask", prompt="Pay?")
graph.node(name="payout")(lambda state: None)
graph.edge(START, "ask")
graph.edge("ask", "payout")
"""
NEEDING = """\
from abeyance import START, Graph


def asking(name, **options):
    graph = Graph(name)
    graph.interrupt("ask", prompt="Well?", timeout="2bd", **options)
    graph.edge(START, "ask")
    return graph


def around(name, inner):
    graph = Graph(name)
    graph.subgraph("inner", inner)
    graph.edge(START, "inner")
    return graph


plain = asking("plain", calendar={"days": "mon-thu"})
holidays = around("holidays", asking("inner", calendar="DE-BY"))
ruled = asking("ruled", calendar={"days": "mon-thu"})
ruled.rule("told", when="(node-id (id ask)) (test (> 2 1))", then=[{"kind": "halt"}])
clips = around("clips", ruled)
"""
NOTIFICATIONS = """\
rules:
  - when: {event: run.failed}
    to: [{apprise: "json://example.com"}]
"""
RETIRED = OLDER + 'graph.retired("pay")(lambda state: None)\n'


@pytest.fixture
def terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    (tmp_path / "checked_graphs.py").write_text(GRAPHS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "checked_graphs", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return Terminal("http://127.0.0.1:1", capsys, monkeypatch)


def test_worker_check_prints_what_it_checked(terminal: Terminal) -> None:
    terminal.set("OPENAI_API_KEY", "made-up")

    assert terminal.call("worker", "checked_graphs:graph", "--check") == (
        0,
        "graphs: desk\nextras: agents\nmodels: openai:gpt-5\nencryption: off\ntraces: off\n",
        "",
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ABEYANCE_JWT_ISSUER", "https://login.example.com", "ABEYANCE_JWT_AUDIENCE and"),
        ("ABEYANCE_OIDC_ISSUER", "https://login.example.com", "ABEYANCE_OIDC_CLIENT_ID must be"),
        ("ABEYANCE_TOKENS_FILE", "no.json", "the tokens file no.json cannot be read"),
    ],
)
def test_worker_check_fails_where_an_api_with_these_settings_would_not_start(
    terminal: Terminal, name: str, value: str, said: str
) -> None:
    terminal.set("OPENAI_API_KEY", "made-up")
    terminal.set(name, value)
    code, _, err = terminal.call("worker", "checked_graphs:graph", "--check")

    assert (code, said in err) == (2, True), err


@pytest.mark.parametrize(
    "framework",
    [
        # The other frameworks take seconds to import.
        pytest.param(name, marks=[] if name == "agent_framework" else [pytest.mark.slow])
        for name in FRAMEWORKS
    ],
)
def test_a_framework_has_an_extra_of_its_own_and_asks_its_model_itself(
    terminal: Terminal, tmp_path: Path, framework: str
) -> None:
    (tmp_path / f"{framework}_graphs.py").write_text(
        f"from foreign_office import FRAMEWORKS, Office, desk\n"
        f"graph = desk(FRAMEWORKS[{framework!r}](Office('Done.')))\n"
    )
    code, told, _ = terminal.call("worker", f"{framework}_graphs:graph", "--check")

    extra = framework.replace("_", "-")
    assert (code, told) == (0, f"graphs: desk\nextras: {extra}\nencryption: off\ntraces: off\n")


def test_each_adapter_has_the_name_of_its_extra() -> None:
    modules = [each.name.replace("_", "-") for each in iter_modules(adapters.__path__)]

    assert modules
    assert {*modules} <= {*(metadata("abeyance").get_all("Provides-Extra") or ())}


@pytest.mark.parametrize(
    ("graph", "variables", "extras"),
    [
        ("plain", {}, "none needed"),
        ("holidays", {}, "people"),
        ("clips", {}, "rules"),
        ("plain", {"ABEYANCE_NOTIFICATIONS": "notifications.yaml"}, "people"),
        ("plain", {"OTEL_TRACES_EXPORTER": "console"}, "none needed"),
        ("holidays", {"OTEL_TRACES_EXPORTER": "otlp"}, "otel, people"),
    ],
)
def test_worker_check_names_the_extras_that_graphs_and_settings_need(
    terminal: Terminal,
    tmp_path: Path,
    graph: str,
    variables: dict[str, str],
    extras: str,
) -> None:
    (tmp_path / "needing_graphs.py").write_text(NEEDING)
    (tmp_path / "notifications.yaml").write_text(NOTIFICATIONS)
    sys.modules.pop("needing_graphs", None)
    for name, text in variables.items():
        terminal.set(name, text)

    code, told, _ = terminal.call("worker", f"needing_graphs:{graph}", "--check")

    assert code == 0
    assert f"extras: {extras}\n" in told


def test_a_missing_key_of_a_model_is_a_warning(terminal: Terminal) -> None:
    code, _, err = terminal.call("worker", "checked_graphs:graph", "--check")

    assert code == 0
    assert err.startswith("abeyance: warning: this worker cannot use the model 'openai:gpt-5'")
    assert "OPENAI_API_KEY" in err


# The first module is missing; the others import it, so they are imported anew.
OPENAI = ("openai", "pydantic_ai.models.openai", "pydantic_ai.providers.openai")


@pytest.mark.parametrize(
    ("missing", "variables", "needs", "hint"),
    [
        (("pydantic_ai",), {}, "graph", "pip install 'abeyance[agents]'"),
        (OPENAI, {}, "graph", 'pip install "pydantic-ai-slim[openai]"'),
        (("boto3",), {"ABEYANCE_STORAGE": "s3://of-nobody/x"}, "any", "pip install 'abeyance[s3]'"),
        (
            (),
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "any",
            "abeyance[otel]",
        ),
        # Workers elsewhere have to read the transcripts of agents.
        ((), {"TEMPORAL_ADDRESS": "temporal.example.com:7233"}, "graph", "ABEYANCE_STORAGE"),
    ],
)
def test_worker_check_fails_for_missing_packages(  # noqa: PLR0917 each row of the table
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[str, ...],
    variables: dict[str, str],
    needs: str,
    hint: str,
) -> None:
    for name in missing:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in missing[:1]:
        monkeypatch.setitem(sys.modules, name, None)
    for name, text in variables.items():
        terminal.set(name, text)

    code, out, err = terminal.call("worker", "checked_graphs:graph", "--check")
    other, _, _ = terminal.call("worker", "checked_graphs:other", "--check")

    assert (code, out, hint in err) == (2, "", True), err
    assert other == (0 if needs == "graph" else 2)


def test_a_storage_that_cannot_be_reached_is_a_warning(terminal: Terminal, tmp_path: Path) -> None:
    terminal.set("ABEYANCE_STORAGE", "/proc/nowhere")
    code, out, err = terminal.call("worker", "checked_graphs:other", "--check")
    assert (code, "storage: /proc/nowhere\n" in out) == (0, True)
    assert err.startswith("abeyance: warning: ")
    assert "/proc/nowhere" in err
    assert err.count("\n") == 1

    terminal.set("ABEYANCE_STORAGE", str(tmp_path / "blobs"))
    code, _, err = terminal.call("worker", "checked_graphs:other", "--check")
    assert (code, err) == (0, "")
    assert not (tmp_path / "blobs").exists()


@pytest.mark.parametrize("options", [["--against-runs"], ["--all"], ["--check", "--all"]])
def test_options_that_say_nothing_together_are_wrong_usage(
    terminal: Terminal, options: list[str]
) -> None:
    code, _, err = terminal.call("worker", "checked_graphs:other", *options)

    assert code == 2
    assert "--check --against-runs --all" in err


def test_runs_cannot_be_compared_while_temporal_is_away(terminal: Terminal) -> None:
    terminal.set("TEMPORAL_ADDRESS", "127.0.0.1:1")

    code, _, err = terminal.call("worker", "checked_graphs:other", "--check", "--against-runs")
    assert code == 4
    assert "Temporal does not answer" in err


def test_a_worker_whose_address_of_metrics_is_taken_ends_and_says_so(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        terminal.set("ABEYANCE_METRICS_ADDRESS", f"127.0.0.1:{port}")

        code, _, err = terminal.call("worker", "checked_graphs:other")
    assert code == 2
    assert f"ABEYANCE_METRICS_ADDRESS='127.0.0.1:{port}' cannot be used" in err
    assert "in use" in err


async def test_each_run_that_would_block_is_listed_and_none_once_its_node_is_retired(
    temporal: TemporalClient, address: str, place: Place
) -> None:
    before = Graph("expense")
    before.interrupt("ask", prompt="Pay?")
    before.node(name="pay")(lambda state: None)
    before.edge(START, "ask")
    before.edge("ask", "pay")
    site = Site(temporal, before)
    runs = sorted([await site.start() for _ in "123"])
    (place.folder / "older.py").write_text(OLDER)
    (place.folder / "retired.py").write_text(RETIRED)

    async def all_are_listed() -> bool:
        return (await check_runs(temporal, site.settings.task_queue, {})).open == len(runs)

    async def checked(module: str, *options: str) -> tuple[int, list[str]]:
        done = await asyncio.to_thread(
            place.call,
            *("worker", f"{module}:graph", "--check", "--against-runs", *options),
            TEMPORAL_ADDRESS=address,
            ABEYANCE_TASK_QUEUE=site.settings.task_queue,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()[4:]

    await eventually(all_are_listed)

    listed = [
        "expense.pay: code_missing: there is no code for the node 'pay'",
        "  remedy: keep it until the run has ended: graph.retired('pay')(...)",
        *(f"  {run_id}" for run_id in runs),
    ]
    assert await checked("older") == (
        1,
        ["open runs: 3; looked at closely: 1; would block: 3", *listed],
    )
    assert await checked("older", "--all") == (
        1,
        ["open runs: 3; looked at closely: 3; would block: 3", *listed],
    )
    assert await checked("retired") == (
        0,
        ["open runs: 3; looked at closely: 1; would block: 0"],
    )
