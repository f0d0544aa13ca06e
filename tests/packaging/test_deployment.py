"""The files for production are pinned and guarded, and contain no secret."""

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

PINNED = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+(-[a-z0-9.-]+)?|postgres:\d+\.\d+-[a-z]+")
OVERRIDDEN = re.compile(r"\$\{([A-Z_]+_IMAGE):-([^}]+)\}")
# These services write their configuration when they start.
WRITES_WHERE_IT_STANDS = {"temporal", "temporal-ui"}
HASHED = re.compile(
    r"^([A-Za-z0-9._-]+)==([^ ]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
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
def test_every_image_is_pinned_to_a_version_and_may_be_pinned_to_a_digest(name: str) -> None:
    service = SERVICES[name]
    given = service["build"]["args"]["PYTHON_IMAGE"] if "build" in service else service["image"]
    match = OVERRIDDEN.fullmatch(given)

    assert match
    assert PINNED.fullmatch(match[2])
    assert match[1] in (ROOT / "docs" / "how-to" / "production.md").read_text()


def test_worker_and_api_read_the_same_tokens() -> None:
    for name in ("worker", "api"):
        assert SERVICES[name]["environment"]["ABEYANCE_TOKENS_FILE"] == "/run/secrets/tokens"
        assert SERVICES[name]["secrets"] == ["tokens"]


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_unprivileged_and_mostly_read_only(name: str) -> None:
    service = SERVICES[name]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "cap_add" not in service
    assert not service.get("privileged")
    assert service.get("read_only", False) is (name not in WRITES_WHERE_IT_STANDS)


def test_services_reach_only_the_networks_that_they_need() -> None:
    members = {
        network: {name for name, service in SERVICES.items() if network in service["networks"]}
        for network in COMPOSE["networks"]
    }

    assert members["database"] == {"postgres", "temporal-schema", "temporal", "records-database"}
    assert members["records"] == {"postgres", "setup", "worker", "api"}
    assert members["outside"] == {"worker", "api"}
    assert not members["temporal"] & {"postgres", "collector", "prometheus"}
    inside = {name for name, network in COMPOSE["networks"].items() if network.get("internal")}
    assert inside == {"database", "records", "temporal", "telemetry"}


def test_the_image_that_we_build_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ours = {service["image"] for service in SERVICES.values() if "build" in service}

    assert ours == {f"abeyance:{version}"}


def test_the_dockerfile_starts_from_one_pinned_image_and_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    (pinned,) = [line.partition("=")[2] for line in lines if line.startswith("ARG PYTHON_IMAGE=")]
    users = [line.split()[1] for line in lines if line.startswith("USER ")]

    assert bases == ["${PYTHON_IMAGE}"] * 2
    assert PINNED.fullmatch(pinned)
    assert SERVICES["api"]["build"]["args"]["PYTHON_IMAGE"] == f"${{PYTHON_IMAGE:-{pinned}}}"
    assert users[-1] not in {"root", "0"}


def test_everything_that_the_image_installs_is_known_by_its_hash() -> None:
    steps = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    commands = re.findall(r"pip (?:install|wheel) [^&\n]*", steps)

    assert len(commands) == 4
    for command in commands:
        assert "--no-index" in command or {"--require-hashes", ":all:"} <= {*command.split()}


def test_the_list_of_the_image_is_what_the_tests_run_with_and_all_that_its_extras_need() -> None:
    listed = locked("requirements.txt")
    tested = dict(line.split("==") for line in read("constraints.txt").splitlines() if "==" in line)
    extras = declared()["optional-dependencies"]
    needed = [
        *declared()["dependencies"],
        *(each for name in image_extras() for each in extras[name]),
    ]

    assert listed.items() <= {canonical(name): version for name, version in tested.items()}.items()
    assert {canonical(re.split(r"[\[>=<]", each)[0]) for each in needed} <= listed.keys()


def test_build_requirements_are_pinned_with_hashes() -> None:
    requires = tomllib.loads(read("pyproject.toml"))["build-system"]["requires"]

    assert dict(each.split("==") for each in requires) == locked("requirements-build.txt")


def locked(file: str) -> dict[str, str]:
    """Return the versions that a list with hashes names; the list has nothing else in it."""
    text = read(f"deploy/{file}")
    assert HASHED.sub("", re.sub("^#.*\n", "", text, flags=re.MULTILINE)) == ""
    return {canonical(name): version for name, version, _ in HASHED.findall(text)}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read(file: str) -> str:
    return (ROOT / file).read_text()


def declared() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(read("pyproject.toml"))["project"]
    return found


def image_extras() -> set[str]:
    (found,) = re.findall(r"^IMAGE_EXTRAS := (.+)$", read("Makefile"), re.MULTILINE)
    return {*found.split()}


@pytest.mark.parametrize("name", SERVICES)
def test_services_take_secrets_from_the_environment(name: str) -> None:
    environment: dict[str, str] = SERVICES[name].get("environment", {})
    secrets = {key: value for key, value in environment.items() if SECRET.search(key)}

    for key, value in secrets.items():
        is_mounted = key.endswith("_FILE") and value.startswith("/run/secrets/")
        assert is_mounted or REQUIRED.fullmatch(value), f"{key} needs `${{VAR:?message}}`"


def test_secret_variables_have_no_defaults() -> None:
    references = [match for text in texts(COMPOSE) for match in REFERENCE.finditer(text)]
    secrets = [match for match in references if SECRET.search(match["name"])]

    assert {match["name"] for match in secrets} >= {
        "POSTGRES_PASSWORD",
        "RECORDS_PASSWORD",
        "ABEYANCE_TOKENS_FILE",
    }
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


def test_only_the_api_which_has_tokens_is_published_and_on_loopback_only() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published == {"api": ["127.0.0.1:8000:8000"]}
    assert SERVICES["api"]["environment"]["ABEYANCE_TOKENS_FILE"] == "/run/secrets/tokens"


@pytest.mark.parametrize("name", ["temporal-ui", "prometheus"])
def test_services_without_a_password_start_only_on_request(name: str) -> None:
    assert SERVICES[name]["profiles"]
    needed = {other for service in SERVICES.values() for other in service.get("depends_on", {})}
    assert name not in needed


def test_temporals_http_api_answers_to_no_host() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "temporal" / "dynamic-config.yaml").read_text())

    assert config["frontend.httpAllowedHosts"] == [{"value": ["abeyance.invalid"]}]


def test_every_file_that_is_mounted_exists() -> None:
    mounts = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    files = {mount.split(":")[0] for mount in mounts if mount.startswith("./")}

    assert files == {
        "./deploy/temporal",
        "./deploy/collector.yaml",
        "./deploy/prometheus.yaml",
        "./deploy/records-database.sh",
    }
    assert all((ROOT / file).exists() for file in files)


def test_prometheus_asks_only_services_that_exist() -> None:
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text())["scrape_configs"]
    asked = {name for job in jobs for found in job["dns_sd_configs"] for name in found["names"]}

    assert asked == {"api", "worker", "temporal", "collector"}
    assert asked <= SERVICES.keys()


@pytest.mark.parametrize("name", ["worker", "api"])
def test_traces_go_to_the_collector_and_the_image_can_send_them(name: str) -> None:
    environment = SERVICES[name]["environment"]

    assert environment["OTEL_TRACES_EXPORTER"] == "otlp"
    assert urlsplit(environment["OTEL_EXPORTER_OTLP_ENDPOINT"]).hostname in SERVICES
    assert "otel" in image_extras()


def test_a_worker_is_not_killed_while_it_lets_its_nodes_go_on() -> None:
    worker = SERVICES["worker"]
    grace = seconds(worker["environment"]["ABEYANCE_SHUTDOWN_GRACE"])

    # docs/how-to/production.md promises this of a worker that stops.
    assert seconds(worker["stop_grace_period"]) >= grace + 15


def test_an_operators_settings_reach_all_our_services() -> None:
    ours = {name: service for name, service in SERVICES.items() if "build" in service}

    assert ours.keys() == {"setup", "worker", "api"}
    for service in ours.values():
        assert service["env_file"] == [{"path": "./abeyance.env", "required": False}]
