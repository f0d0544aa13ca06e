"""The files for production: pinned, guarded, and without a secret of their own."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from abeyance.duration import seconds
from abeyance.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WITHOUT_A_PROGRAM_TO_CHECK_WITH = {"collector"}

PINNED = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?(-[a-z0-9.-]+)?")
SECRET = re.compile(r"PASSWORD|PASSWD|PWD|SECRET|TOKEN|CREDENTIAL|API_?KEY|PRIVATE")
REQUIRED = re.compile(r"\$\{[A-Z_]+:\?[^}]+\}")
REFERENCE = re.compile(r"\$\{?(?P<name>[A-Za-z_]+)(?P<rest>[^}]*)")


def texts(part: object) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list):
        for value in part.values() if isinstance(part, dict) else part:
            yield from texts(value)


def is_one_shot(service: dict[str, Any]) -> bool:
    return str(service["restart"]).startswith("on-failure")


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_to_a_version(name: str) -> None:
    assert PINNED.fullmatch(SERVICES[name]["image"])


def test_the_image_that_we_build_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ours = {service["image"] for service in SERVICES.values() if "build" in service}

    assert ours == {f"abeyance:{version}"}


def test_the_dockerfile_starts_from_pinned_images_and_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    users = [line.split()[1] for line in lines if line.startswith("USER ")]

    assert len(bases) == 2
    assert all(PINNED.fullmatch(base) for base in bases)
    assert users[-1] not in {"root", "0"}


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_a_secret_of_its_own(name: str) -> None:
    environment: dict[str, str] = SERVICES[name].get("environment", {})
    secrets = {key: value for key, value in environment.items() if SECRET.search(key)}

    for key, value in secrets.items():
        is_mounted = key.endswith("_FILE") and value.startswith("/run/secrets/")
        assert is_mounted or REQUIRED.fullmatch(value), f"{key} needs `${{VAR:?message}}`"


def test_no_variable_that_may_be_a_secret_has_a_default() -> None:
    references = [match for text in texts(COMPOSE) for match in REFERENCE.finditer(text)]
    secrets = [match for match in references if SECRET.search(match["name"])]

    assert {match["name"] for match in secrets} >= {"POSTGRES_PASSWORD", "ABEYANCE_TOKENS_FILE"}
    assert all(match["rest"].startswith(":?") for match in secrets)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_comes_back_and_says_whether_it_is_well(name: str) -> None:
    service = SERVICES[name]

    assert service["restart"] == "unless-stopped" or is_one_shot(service)
    has_check = "healthcheck" in service
    assert has_check != (is_one_shot(service) or name in WITHOUT_A_PROGRAM_TO_CHECK_WITH)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_until_what_it_needs_is_done_or_well(name: str) -> None:
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        done = "service_completed_successfully"
        expected = done if is_one_shot(SERVICES[other]) else "service_healthy"
        assert wait["condition"] == expected


def test_every_setting_that_a_service_is_given_exists() -> None:
    given = {key for service in SERVICES.values() for key in service.get("environment", {})}
    known = {f"ABEYANCE_{field.upper()}" for field in Settings.model_fields}

    assert {key for key in given if key.startswith("ABEYANCE_")} <= known


def test_every_port_is_published_on_loopback_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert len(published) == 3
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_file_that_is_mounted_exists() -> None:
    mounts = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    files = {mount.split(":")[0] for mount in mounts if mount.startswith("./")}

    assert files == {"./deploy/temporal", "./deploy/collector.yaml", "./deploy/prometheus.yaml"}
    assert all((ROOT / file).exists() for file in files)


@pytest.mark.parametrize(
    "file", ["collector.yaml", "prometheus.yaml", "temporal/dynamic-config.yaml"]
)
def test_every_configuration_is_a_mapping(file: str) -> None:
    assert isinstance(yaml.safe_load((ROOT / "deploy" / file).read_text()), dict)


def test_prometheus_asks_only_services_that_exist() -> None:
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text())["scrape_configs"]
    asked = {name for job in jobs for found in job["dns_sd_configs"] for name in found["names"]}

    assert asked == {"api", "worker", "temporal", "collector"}
    assert asked <= SERVICES.keys()


def test_the_image_has_extras_that_the_package_has() -> None:
    text = (ROOT / "Dockerfile").read_text()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert extras() <= {*declared["optional-dependencies"]}
    assert '"$(echo /tmp/wheels/*.whl)[${EXTRAS}]"' in text


def extras() -> set[str]:
    (found,) = re.findall(r"^ARG EXTRAS=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return {*found.split(",")}


@pytest.mark.parametrize("name", ["worker", "api"])
def test_traces_go_to_the_collector_and_the_image_can_send_them(name: str) -> None:
    environment = SERVICES[name]["environment"]

    assert environment["OTEL_TRACES_EXPORTER"] == "otlp"
    assert urlsplit(environment["OTEL_EXPORTER_OTLP_ENDPOINT"]).hostname in SERVICES
    assert "otel" in extras()


def test_a_worker_is_not_killed_while_it_lets_its_nodes_go_on() -> None:
    worker = SERVICES["worker"]
    grace = seconds(worker["environment"]["ABEYANCE_SHUTDOWN_GRACE"])

    # What docs/production.md promises of a worker that stops.
    assert seconds(worker["stop_grace_period"]) >= grace + 15


def test_what_an_operator_adds_is_told_to_all_that_have_to_agree() -> None:
    ours = {name: service for name, service in SERVICES.items() if "build" in service}

    assert ours.keys() == {"setup", "worker", "api"}
    for service in ours.values():
        assert service["env_file"] == [{"path": "./abeyance.env", "required": False}]
