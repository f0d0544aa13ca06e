"""Settings come from the environment, and a wrong one is an error that names its variable."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from abeyance.core.state import Limits
from abeyance.errors import SettingsError
from abeyance.settings import Settings, load_settings, unknown_settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ABEYANCE_")]:
        monkeypatch.delenv(name)


def test_settings_without_an_environment_are_the_defaults() -> None:
    settings = load_settings()

    assert settings == Settings()
    assert (settings.app, settings.task_queue, settings.tokens_file) == (None, "abeyance", None)
    assert settings.limits() == Limits()


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("APP", "shop:graphs", "app", "shop:graphs"),
        ("TOKENS_FILE", "/run/secrets/tokens", "tokens_file", Path("/run/secrets/tokens")),
        ("PUBLIC_URL", "https://Inbox.example/", "public_url", "https://inbox.example"),
        ("MAX_QUEUE_SIZE", "5", "max_queue_size", 5),
        ("SESSION_INACTIVE_TIMEOUT", "2d", "session_inactive_timeout", 172_800.0),
        ("PAUSE_TIMEOUT", "P2D", "pause_timeout", 172_800.0),
        ("SHUTDOWN_GRACE", "500ms", "shutdown_grace", 0.5),
        ("ALLOWED_ACTIONS", "Sing, dance,", "allowed_actions", ("Sing", "dance")),
        ("ALLOWED_MEDIA_HOSTS", "Media.example", "allowed_media_hosts", ("media.example",)),
        ("ALLOWED_HOSTS", "Inbox.example.com, inbox:8443,", "allowed_hosts", None),
        ("STORAGE", "s3://bucket/a/b/", "storage", "s3://bucket/a/b/"),
        (
            *("UI_ORIGIN", "http://127.0.0.1:8233, https://UI.example", "ui_origin"),
            ("http://127.0.0.1:8233", "https://ui.example"),
        ),
    ],
)
def test_a_variable_sets_its_field(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, field: str, expected: Any
) -> None:
    monkeypatch.setenv(f"ABEYANCE_{name}", value)
    found = getattr(load_settings(), field)

    assert found == (("inbox.example.com", "inbox:8443") if expected is None else expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TASK_QUEUE", ""),
        ("TASK_QUEUE", "q" * 201),
        ("TASK_QUEUE", "é" * 101),
        ("JWT_AUDIENCE", ""),
        ("PUBLIC_URL", "inbox.example"),
        ("PUBLIC_URL", "https://inbox.example/abeyance"),
        ("PUBLIC_URL", "https://ada:secret@inbox.example"),
        ("PUBLIC_URL", "https://inbox.example:"),
        ("PUBLIC_URL", "https://inbox.example:99999"),
        ("PUBLIC_URL", "https://in box.example"),
        ("PUBLIC_URL", "https://:443"),
        ("OIDC_SCOPES", "openid  profile"),
        ("MAX_QUEUE_SIZE", "0"),
        ("MAX_ACTIVE_RUNS", "-1"),
        ("MAX_ACTIVE_RUNS_POLICY", "drop"),
        ("SESSION_INACTIVE_TIMEOUT", "-1s"),
        ("PRESET", "huge"),
        ("MAX_MESSAGE_LENGTH", "0"),
        ("MAX_METADATA_SIZE", "1"),
        ("MAX_BODY_SIZE", "999"),
        ("MAX_VISITS", "-1"),
        ("MAX_PARALLEL_VISITS", "1001"),
        ("PAUSE_TIMEOUT", "0"),
        ("PAUSE_TIMEOUT", "a while"),
        ("DEFAULT_TIMEOUT", "0s"),
        ("SHUTDOWN_GRACE", "-PT1S"),
        ("CONTINUE_AS_NEW_AFTER", "2"),
        ("METRICS_ADDRESS", "localhost:9000"),
        ("METRICS_ADDRESS", "9000"),
        ("METRICS_ADDRESS", "127.0.0.1:99999"),
        ("METRICS_ADDRESS", "::1:9000"),
        ("ALLOWED_HOSTS", "https://a.example"),
        ("ALLOWED_MEDIA_HOSTS", "a.example, b.example/c"),
        ("STORAGE", "s3:/bucket"),
        ("STORAGE", ""),
        ("STORAGE", "s3://"),
        ("STORAGE", "s3:///prefix"),
        ("STORAGE", "https://bucket/prefix"),
        ("STORAGE", "s3://key:secret@bucket"),
        ("STORAGE_SHARED", "perhaps"),
        ("MAX_PAYLOAD", "1023"),
        ("UI_ORIGIN", "http://127.0.0.1:8233/"),
        ("TOKENS_FILE", ""),
    ],
)
def test_a_wrong_value_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"ABEYANCE_{name}", value)

    with pytest.raises(
        SettingsError, match=re.escape(f"invalid settings: ABEYANCE_{name}='{value}': ")
    ) as found:
        load_settings()
    assert "Value error" not in str(found.value)


@pytest.mark.parametrize("address", ["127.0.0.1:9000", "0.0.0.0:0", "[::1]:9000"])
def test_metrics_are_served_at_an_ip_address_and_a_port(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("ABEYANCE_METRICS_ADDRESS", address)

    assert load_settings().metrics_address == address


def test_all_wrong_settings_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_VISITS", "SHUTDOWN_GRACE", "MAX_QUEUE_SIZE"):
        monkeypatch.setenv(f"ABEYANCE_{name}", "wrong")

    with pytest.raises(SettingsError) as caught:
        load_settings()
    for name in ("MAX_VISITS", "SHUTDOWN_GRACE", "MAX_QUEUE_SIZE"):
        assert f"ABEYANCE_{name}='wrong': " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        (
            "ABEYANCE_MAXVISITS",
            "ABEYANCE_MAXVISITS is not a setting: did you mean ABEYANCE_MAX_VISITS?",
        ),
        (
            "ABEYANCE_TOKEN_FILE",
            "ABEYANCE_TOKEN_FILE is not a setting: did you mean ABEYANCE_TOKENS_FILE?",
        ),
        ("abeyance_coffee", "abeyance_coffee is not a setting: it has no effect"),
    ],
)
def test_an_unknown_setting_is_a_warning_with_the_nearest_name(name: str, warning: str) -> None:
    assert unknown_settings({name: "3", "ABEYANCE_APP": "", "abeyance_url": "1", "X": ""}) == [
        warning
    ]


def test_an_unknown_setting_is_logged_once_by_a_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ABEYANCE_MAX_QUEUE_SISE", "3")

    load_settings()
    load_settings()

    assert [record.getMessage() for record in caplog.records] == [
        "ABEYANCE_MAX_QUEUE_SISE is not a setting: did you mean ABEYANCE_MAX_QUEUE_SIZE?"
    ]


def test_a_token_is_not_shown_where_settings_are() -> None:
    assert "s3cret" not in repr(Settings(token="s3cret"))


def test_the_limits_of_a_run_are_those_of_the_settings() -> None:
    lengths = {"max_queue_size": 1, "max_message_length": 7, "max_metadata_size": 8}
    bounds = {"max_visits": 2, "max_parallel_visits": 3, "pause_timeout": 4}
    lists = {"allowed_actions": ("sing",), "allowed_media_hosts": ("media.example",)}
    given: dict[str, Any] = {**lengths, **bounds, **lists, "continue_as_new_after": 6}

    assert Settings(**given).limits() == Limits(**given)


PRESETS = {
    # queue, runs, seconds of inactivity, characters of a message, bytes of metadata
    "multi-tenant": (50, 1_000, 1_800.0, 5_000, 50_000),
    "high-throughput": (500, 0, 7_200.0, 50_000, 500_000),
    "constrained": (20, 100, 600.0, 1_000, 10_000),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_gives_settings_that_go_together(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("ABEYANCE_PRESET", name)
    found = load_settings()

    assert PRESETS[name] == (
        found.max_queue_size,
        found.max_active_runs,
        found.session_inactive_timeout,
        found.max_message_length,
        found.max_metadata_size,
    )


def test_a_setting_takes_precedence_over_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABEYANCE_PRESET", "constrained")
    monkeypatch.setenv("ABEYANCE_MAX_QUEUE_SIZE", "33")
    monkeypatch.setenv("ABEYANCE_MAX_ACTIVE_RUNS", "0")

    assert (load_settings().max_queue_size, load_settings().max_active_runs) == (33, 0)
    assert Settings(preset="multi-tenant", max_queue_size=44).max_queue_size == 44


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "set ABEYANCE_BUILD_ID"),
        ({"BUILD_ID": "1", "TASK_QUEUE": "shop.eu"}, "choose another ABEYANCE_TASK_QUEUE"),
    ],
)
def test_versions_of_workers_need_a_build_id_and_a_task_queue_that_can_name_them(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str
) -> None:
    for name, value in {**variables, "VERSIONING": "pinned"}.items():
        monkeypatch.setenv(f"ABEYANCE_{name}", value)

    with pytest.raises(SettingsError, match="ABEYANCE_VERSIONING") as caught:
        load_settings()
    assert told in str(caught.value)


def test_a_secret_named_by_the_notifications_file_is_a_known_setting(tmp_path: Path) -> None:
    file = tmp_path / "notifications.yaml"
    file.write_text("mail: {url_env: ABEYANCE_SMTP_URL}", encoding="utf-8")
    environment = {"ABEYANCE_SMTP_URL": "x", "ABEYANCE_NOTIFICATIONS": str(file)}

    assert unknown_settings(environment) == []
    file.unlink()
    assert len(unknown_settings(environment)) == 1
