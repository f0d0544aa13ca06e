"""The chart and the plain manifests are valid and guarded, and each wrong value gets a line."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import typer
from chart import CHART, PLAIN, Manifest, example, manifests, plain, rendered

from abeyance.cli.main import commands
from abeyance.duration import seconds
from abeyance.settings import Settings

helm = pytest.importorskip("helm_python")
kubernetes = pytest.importorskip("kubernetes_validate")

_ROOT = Path(__file__).parents[2]
_COMMANDS = typer.main.get_group(commands).commands
_CLIENT = {
    "temporal": {
        "address": "abeyance.tmprl.cloud:7233",
        "clientCertificate": "temporal-client",
        "serverCa": "ca.crt",
    }
}
_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rolled": {"worker": {"versioning": "off"}, "setup": {"retention": "30d"}},
    "auto-upgrade": {"worker": {"versioning": "auto-upgrade"}},
    "folder": {"storage": {"url": "", "claim": "blobs"}},
    "client certificate": _CLIENT,
    "signed requests": {"slack": {"socketMode": False}},
    "without slack": {"slack": {"enabled": False}, "notifications": ""},
    "autoscaled": {"worker": {"autoscaling": {"enabled": True}}},
    "elsewhere": {
        "image": {"digest": f"sha256:{'a' * 64}", "pullSecrets": [{"name": "registry"}]},
        "scheduling": {"nodeSelector": {"pool": "agents"}, "tolerations": [{"key": "agents"}]},
        "networkPolicy": {
            "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
        },
    },
    "open network": {"networkPolicy": {"enabled": False}},
}


def with_(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the plain manifests with changes."""

    def merge(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        for key, value in changes.items():
            if isinstance(value, dict) and isinstance(values.get(key), dict):
                merge(values[key], value)
            else:
                values[key] = value
        return values

    return merge(example(), deepcopy(changes))


def made(**changes: Any) -> dict[str, Manifest]:
    """Return the objects that Helm makes, by `Kind/name`."""
    texts = [text for name, text in _rendered(json.dumps(changes)) if name.endswith(".yaml")]
    return {name: each for text in texts for name, each in manifests(text).items()}


@functools.cache
def _rendered(changes: str) -> list[tuple[str, str]]:
    return [*rendered(with_(json.loads(changes))).items()]


def refused(**changes: Any) -> list[str]:
    """Return the lines in which Helm refuses to render, one for each fault."""
    with pytest.raises(helm.HelmError) as error:
        made(**changes)
    return str(error.value).splitlines()


def pod(manifest: Manifest) -> Manifest:
    spec: Manifest = manifest["spec"]
    return spec["template"]["spec"] if "template" in spec else spec


def containers(manifest: Manifest) -> list[Manifest]:
    return [*pod(manifest).get("initContainers", []), *pod(manifest)["containers"]]


def environment(container: Manifest) -> dict[str, str]:
    """Return the variables of a container; a variable of a Secret has the name of the Secret as value."""
    return {
        each["name"]: each["value"]
        if "value" in each
        else each["valueFrom"]["secretKeyRef"]["name"]
        for each in container["env"]
    }


def workloads(**changes: Any) -> list[Manifest]:
    kinds = {"Deployment", "Job", "Pod"}
    return [each for each in made(**changes).values() if each["kind"] in kinds]


@pytest.mark.parametrize("variant", _VARIANTS)
def test_the_objects_of_the_chart_are_valid_in_current_kubernetes(
    variant: str,
) -> None:
    objects = made(**_VARIANTS[variant])

    assert {"Job/abeyance-setup", "Deployment/abeyance-api", "Service/abeyance-api"} <= {*objects}
    for each in objects.values():
        if each["kind"] != "ScaledObject":
            validate(json.dumps(each))


@functools.cache
def validate(manifest: str) -> None:
    """Validate a manifest, and only once: most objects are the same in every variant."""
    kubernetes.validate(json.loads(manifest), kubernetes.latest_version(), strict=True)


def test_helm_finds_nothing_to_mend() -> None:
    found = helm.lint(CHART, values=example())

    assert found["errors"] == []
    assert [each["error"] for each in found["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("file", ["setup.yaml", "abeyance.yaml"])
def test_the_plain_manifests_are_what_the_chart_makes(file: str) -> None:
    assert (PLAIN / file).read_text(encoding="utf-8") == plain()[file], "run `make manifests`"


def test_the_chart_and_its_image_have_the_version_of_the_package() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with helm.Chart.load(CHART) as chart:
        metadata = chart.metadata

    assert metadata["appVersion"] == metadata["version"] == project["version"]


@pytest.mark.parametrize("variant", _VARIANTS)
def test_every_process_is_a_command_with_settings_that_exist(variant: str) -> None:
    known = {f"ABEYANCE_{field.upper()}" for field in Settings.model_fields}
    for container in [
        each for made in workloads(**_VARIANTS[variant]) for each in containers(made)
    ]:
        name, *arguments = container["args"]
        given = environment(container)

        assert _COMMANDS[name].make_context(name, arguments)
        assert {each for each in given if each.startswith("ABEYANCE_")} <= known
        Settings.model_validate(
            {key.removeprefix("ABEYANCE_").lower(): value for key, value in given.items()}
            | {"encryption_keys": None}
        )


@pytest.mark.parametrize("variant", _VARIANTS)
def test_processes_are_unprivileged_and_write_only_to_their_volumes(
    variant: str,
) -> None:
    for each in workloads(**_VARIANTS[variant]):
        assert pod(each)["securityContext"]["runAsNonRoot"]
        assert pod(each)["securityContext"]["runAsUser"] == 10001
        assert not pod(each)["automountServiceAccountToken"]
        for container in containers(each):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_the_user_of_the_pods_is_that_of_the_image() -> None:
    lines = (_ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if line.startswith("USER")] == ["USER 10001"]


@pytest.mark.parametrize("grace", [0, 30, 600])
def test_a_worker_is_not_killed_before_it_has_ended_by_itself(grace: int) -> None:
    worker = made(worker={"versioning": "off", "shutdownGrace": grace})[
        "Deployment/abeyance-worker"
    ]
    given = environment(containers(worker)[0])["ABEYANCE_SHUTDOWN_GRACE"]

    # docs/how-to/production.md promises this of a worker that stops.
    assert pod(worker)["terminationGracePeriodSeconds"] >= seconds(given) + 15


def test_an_api_leaves_its_service_before_it_stops() -> None:
    api = made()["Deployment/abeyance-api"]
    pause = containers(api)[0]["lifecycle"]["preStop"]["sleep"]["seconds"]

    assert 0 < pause < pod(api)["terminationGracePeriodSeconds"] - 3


def test_a_probe_asks_where_the_process_listens() -> None:
    objects = made()
    (api,), (worker,) = (
        containers(objects[f"Deployment/abeyance-{name}"]) for name in ("api", "worker-2f81c9d")
    )
    ports = {each["name"]: each["containerPort"] for each in (*api["ports"], *worker["ports"])}

    assert api["args"][-1] == str(ports["http"])
    assert environment(worker)["ABEYANCE_METRICS_ADDRESS"].endswith(f":{ports['metrics']}")
    for container, probes in (
        (api, {"startup", "liveness", "readiness"}),
        (worker, {"startup", "readiness"}),
    ):
        found = {name.removesuffix("Probe") for name in container if name.endswith("Probe")}
        assert found == probes
        for probe in probes:
            assert container[f"{probe}Probe"]["httpGet"]["port"] in ports


def test_the_api_answers_to_the_names_of_its_service_and_to_those_of_the_values() -> None:
    (api,) = containers(made()["Deployment/abeyance-api"])
    hosts = environment(api)["ABEYANCE_ALLOWED_HOSTS"].split(",")

    assert {"abeyance-api", "abeyance-api.abeyance.svc", "abeyance.example.com"} <= {*hosts}


def test_apis_and_workers_outlive_the_loss_of_a_node_and_a_rollout() -> None:
    objects = made()
    for name in ("api", "worker"):
        budget = objects[f"PodDisruptionBudget/abeyance-{name}"]["spec"]
        (deployment,) = [
            each["spec"]
            for key, each in objects.items()
            if key.startswith(f"Deployment/abeyance-{name}")
        ]
        labels = deployment["template"]["metadata"]["labels"]

        assert deployment["replicas"] == 2
        assert budget["maxUnavailable"] == 1
        assert budget["selector"]["matchLabels"].items() <= labels.items()
        assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_a_rollout_waits_for_the_setup_job() -> None:
    job = made(worker={"versioning": "off"})["Job/abeyance-setup"]

    assert [each["args"] for each in containers(job)] == [
        ["worker", "--check"],
        ["setup"],
        ["worker", "--check", "--against-runs"],
    ]
    when = job["metadata"]["annotations"]["helm.sh/hook"].split(",")
    assert {*when} == {"pre-install", "pre-upgrade", "pre-rollback"}
    # Each exit code ends the job at once, except that of a service that is away and may come back.
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2, 3]}}
    assert {each["terminationMessagePolicy"] for each in containers(job)} == {
        "FallbackToLogsOnError"
    }


def test_runs_that_keep_their_build_are_not_compared_with_the_next_one() -> None:
    for changes in ({"worker": {"versioning": "pinned"}}, {"setup": {"checkRuns": False}}):
        job = made(**changes)["Job/abeyance-setup"]
        assert [each["name"] for each in containers(job)] == ["check", "setup"]


@pytest.mark.parametrize("versioning", ["pinned", "auto-upgrade"])
def test_the_workers_of_a_build_stay_when_the_next_one_is_rolled_out(versioning: str) -> None:
    one, other = (
        made(
            image={"tag": tag}, worker={"versioning": versioning, "autoscaling": {"enabled": True}}
        )
        for tag in ("v1.0", "2f81c9d")
    )
    (name,) = [each for each in one if each.startswith("Deployment/abeyance-worker-v1-0-")]

    assert name.replace("Deployment", "ScaledObject") in one
    assert {"Deployment/abeyance-worker-2f81c9d", "ScaledObject/abeyance-worker-2f81c9d"} <= {
        *other
    }
    deployment = one[name]
    assert deployment["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert deployment["spec"]["selector"]["matchLabels"]["abeyance/build"] == "v1.0"
    assert environment(containers(deployment)[0])["ABEYANCE_BUILD_ID"] == "v1.0"


def test_no_two_builds_share_a_deployment() -> None:
    long = f"2026-12-01-{'branch-' * 6}"
    tags = ["v1.0", "v1-0", "V1-0", "v1_0", f"{long}1", f"{long}2"]
    names = [
        name.partition("/")[2]
        for tag in tags
        for name in made(image={"tag": tag})
        if name.startswith("Deployment/abeyance-worker")
    ]

    assert len({*names}) == len(tags)
    # Its autoscaler has the name as a label.
    assert max(map(len, names)) <= 63


def test_workers_are_added_while_tasks_of_their_build_wait() -> None:
    scaled = made(
        worker={"autoscaling": {"enabled": True, "max": 20, "authentication": "temporal"}}
    )
    spec = scaled["ScaledObject/abeyance-worker-2f81c9d"]["spec"]

    assert "replicas" not in scaled["Deployment/abeyance-worker-2f81c9d"]["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 20)
    (trigger,) = spec["triggers"]
    assert trigger["authenticationRef"] == {"name": "temporal"}
    # KEDA takes only texts.
    assert trigger["metadata"] == {
        "endpoint": "temporal-frontend.temporal.svc:7233",
        "namespace": "default",
        "taskQueue": "abeyance",
        "queueTypes": "workflow,activity",
        "targetQueueSize": "10",
        "workerDeploymentName": "abeyance",
        "workerDeploymentBuildId": "2f81c9d",
    }


def test_processes_get_only_the_secrets_that_they_use() -> None:
    objects = made()
    given = {
        name: environment(containers(objects[f"Deployment/abeyance-{name}"])[0])
        for name in ("api", "slack", "worker-2f81c9d")
    }

    assert [name for name, each in given.items() if "OPENAI_API_KEY" in each] == ["worker-2f81c9d"]
    assert [name for name, each in given.items() if "ABEYANCE_SLACK_BOT_TOKEN" in each] == ["slack"]
    assert "ABEYANCE_TOKENS_FILE" not in given["slack"]
    assert all(each["PGPASSWORD"] == "abeyance" for each in given.values())


def test_nobody_reaches_a_pod_but_through_the_port_that_is_there_for_them() -> None:
    objects = made(**_VARIANTS["elsewhere"])
    policies = {name: each["spec"] for name, each in objects.items() if "NetworkPolicy/" in name}

    assert policies["NetworkPolicy/abeyance"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policies["NetworkPolicy/abeyance"]
    assert [rule["ports"] for rule in policies["NetworkPolicy/abeyance"]["egress"]] == [
        [
            {"port": port, "protocol": protocol}
            for port, protocol in (
                (53, "UDP"),
                (53, "TCP"),
                (7233, "TCP"),
                (5432, "TCP"),
                (443, "TCP"),
            )
        ]
    ]
    for name, port in (("api", 8000), ("worker", 9000)):
        (rule,) = policies[f"NetworkPolicy/abeyance-{name}"]["ingress"]
        assert rule["ports"] == [{"port": port, "protocol": "TCP"}]
        assert len(rule["from"]) == 1
    # If the values name nobody for the metrics, nobody reaches them.
    assert "NetworkPolicy/abeyance-worker" not in made()


def test_a_database_at_another_port_is_reached() -> None:
    url = "postgresql://abeyance@db.example.com:6432/abeyance?sslmode=verify-full"
    (rule,) = made(database={"url": url})["NetworkPolicy/abeyance"]["spec"]["egress"]

    assert 6432 in [each["port"] for each in rule["ports"]]


_OIDC = {"ABEYANCE_OIDC_ISSUER": "https://login.example.com"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"image": {"tag": ""}}, "image.tag is not set"),
        ({"app": ""}, "app is not set"),
        ({"temporal": {"address": ""}}, "temporal.address is not set"),
        ({"secret": {"name": ""}}, "secret.name is not set"),
        ({"image": {"tag": "latest"}}, "image.tag is latest, which moves"),
        ({"database": {"url": "sqlite:///records.db"}}, "database.url is not a postgresql://"),
        ({"database": {"url": "postgresql://a:b@host/name"}}, "database.url has a password"),
        ({"storage": {"claim": "blobs"}}, "storage.url and storage.claim are both set"),
        ({"temporal": {"serverCa": "ca.crt"}}, "temporal.serverCa is a key of"),
        ({"api": {"tokensSecret": ""}}, "nobody could call the API"),
        ({"settings": _OIDC}, "add ABEYANCE_SIGNIN_KEYS to secret.keys"),
        ({"settings": {"PGPASSWORD": "x"}}, "settings.PGPASSWORD is a secret"),
        ({"settings": {"OPENAI_API_KEY": "x"}}, "OPENAI_API_KEY is among settings and among"),
        ({"settings": {"ABEYANCE_APP": "x"}}, "settings.ABEYANCE_APP is set by the value app"),
        (
            {"secret": {"keys": ["PGPASSWORD", "ABEYANCE_DATABASE_URL"]}},
            "ABEYANCE_DATABASE_URL is among the keys of the Secret, and is set by the value database.url",
        ),
        (
            {"secret": {"keys": ["PGPASSWORD", "ABEYANCE_SLACK_BOT_TOKEN"]}},
            "ABEYANCE_SLACK_BOT_TOKEN is a key of slack.secret",
        ),
        ({"database": {"url": "postgresql://host/name?password=b"}}, "database.url has a password"),
        ({"worker": {"secretKeys": ["PGPASSWORD"]}}, "PGPASSWORD is among secret.keys and"),
        ({"taskQueue": "a.b"}, "taskQueue a.b names the worker deployment"),
        (
            {"worker": {"autoscaling": {"enabled": True, "min": 11}}},
            "worker.autoscaling.min is more than worker.autoscaling.max",
        ),
        (
            {**_CLIENT, "worker": {"autoscaling": {"enabled": True}}},
            "Temporal needs credentials, and KEDA has none",
        ),
        ({"notifications": ""}, "slack.enabled needs rules"),
        ({"slack": {"secret": ""}}, "slack.enabled needs the tokens of the app"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_missing_or_contradictory_value_is_refused_in_one_line(
    changes: dict[str, Any], line: str
) -> None:
    _, fault = refused(**changes)

    assert line in fault


@pytest.mark.parametrize("release", ["a.b", "1st"])
def test_a_release_that_can_name_no_service_is_refused(release: str) -> None:
    with pytest.raises(helm.HelmError, match=f"the release {release} names a Service"):
        rendered(example(), release=release)


def test_a_number_reaches_its_process_as_it_was_written() -> None:
    objects = made(
        settings={"ABEYANCE_MAX_BODY_SIZE": 10_000_000, "ABEYANCE_MCP": "all"},
        worker={"shutdownGrace": 1_000_000, "versioning": "off"},
    )
    given = environment(containers(objects["Deployment/abeyance-worker"])[0])

    assert given["ABEYANCE_MAX_BODY_SIZE"] == "10000000"
    assert given["ABEYANCE_MCP"] == "all"
    assert given["ABEYANCE_SHUTDOWN_GRACE"] == "1000000"


def test_the_setup_job_checks_who_may_call_with_the_settings_of_the_api() -> None:
    objects = made()
    (api,) = containers(objects["Deployment/abeyance-api"])
    check, *_ = containers(objects["Job/abeyance-setup"])

    assert environment(api).items() <= environment(check).items()


def test_all_faults_of_the_values_are_listed() -> None:
    assert len(refused(app="", image={"tag": "latest"}, api={"tokensSecret": ""})) == 4


def test_a_value_that_does_not_exist_is_refused_by_its_name() -> None:
    assert any("replica'" in line for line in refused(worker={"replica": 3}))


def test_every_setting_that_is_a_secret_is_known_to_be_one() -> None:
    secret = {
        f"ABEYANCE_{name.upper()}" for name, each in Settings.model_fields.items() if not each.repr
    }
    told = re.findall(
        r'"([A-Z_]+)"', re.findall(r"\$secrets := list (.*?) -}}", _read("_checks.tpl"))[0]
    )

    assert {*told} == secret - {"ABEYANCE_DATABASE_URL"} | {"PGPASSWORD", "TEMPORAL_API_KEY"}


def test_every_variable_that_the_chart_sets_is_known_to_be_its_own() -> None:
    told = {*re.findall(r'^  "([A-Z_]+)"', _read("_checks.tpl"), re.MULTILINE)}
    given = {*re.findall(r"name: ((?:ABEYANCE|TEMPORAL)_[A-Z_]+)", _read("_pod.tpl"))}

    assert given == told


def _read(template: str) -> str:
    return (CHART / "templates" / template).read_text(encoding="utf-8")
