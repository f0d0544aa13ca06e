"""The sign-in page in a real browser: with a token, at a provider of another site, and the sign-out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium
from dev_stack import until
from oidc_provider import CLIENT, SECRET, providing
from stack import served

from abeyance.api.app import create_app
from abeyance.settings import Settings
from abeyance.token_file import add_token

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


class Page:
    """A page as its user sees it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def one(self, selector: str) -> Any:
        def shown() -> Any:
            found = self.driver.find_elements("css selector", selector)
            return next((each for each in found if each.is_displayed()), None)

        return until(shown, selector, seconds=15)

    def says(self, selector: str, text: str) -> None:
        until(lambda: text in self.one(selector).text, text, seconds=15)

    def is_at(self, path: str) -> None:
        until(lambda: self.driver.current_url.endswith(path), path, seconds=15)


async def driven(settings: Settings, folder: Path, work: Callable[[Page, str], None]) -> None:
    """Do some work in a browser. The service is on another site than 127.0.0.1."""

    def drive(url: str) -> list[str]:
        with chromium(folder) as driver:
            work(Page(driver), url)
            logged = driver.get_log("browser")
        return [each["message"] for each in logged if each["level"] == "SEVERE"]

    async with served(create_app(settings, {})) as api:
        faults = await asyncio.to_thread(drive, f"http://localhost:{api.port}")
    # The log shows violations of the page's policy. Failed requests are expected without Temporal.
    assert [fault for fault in faults if "status of " not in fault] == []


async def test_somebody_signs_in_with_a_token_and_out_again(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token = add_token(file, "ada", ["runs:read"])

    def work(page: Page, url: str) -> None:
        page.driver.get(f"{url}/signin?next=/signin%23back")
        page.one("#token").send_keys("nobodys")
        page.one("form button").click()
        page.says("[role=alert]", "unknown or was revoked")
        page.one("#token").send_keys(token)
        page.one("form button").click()
        page.is_at("/signin#back")
        page.driver.refresh()
        page.says("#who", "You are ada.")
        page.one("#sign-out").click()
        until(lambda: not page.driver.get_cookies(), "no cookie", seconds=15)

    await driven(Settings(tokens_file=file), tmp_path / "profile", work)


async def test_somebody_signs_in_at_a_provider_of_another_site(tmp_path: Path) -> None:
    with providing() as provider:
        settings = Settings(
            oidc_issuer=provider.url, oidc_client_id=CLIENT, oidc_client_secret=SECRET
        )

        def work(page: Page, url: str) -> None:
            page.driver.get(f"{url}/signin?next=/signin%23back")
            page.says("a.provider", provider.url.removeprefix("http://"))
            page.one("a.provider").click()
            page.is_at("/signin#back")
            page.says("#who", "You are ada.")
            (cookie,) = page.driver.get_cookies()
            assert (cookie["sameSite"], cookie["httpOnly"]) == ("Strict", True)

        await driven(settings, tmp_path / "profile", work)
