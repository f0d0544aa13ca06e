"""Chromium without a screen, driven by a test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def chromium(folder: Path, *options: str) -> Iterator[Any]:
    """Yield a driver of a browser with its profile in a folder, and with these command-line options."""
    webdriver = pytest.importorskip("selenium.webdriver")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    chosen = webdriver.ChromeOptions()
    chosen.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    chosen.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    quiet = ("background-networking", "component-update", "sync", "gpu", "quic")
    for option in (
        "--headless=new",
        "--no-sandbox",
        "--no-first-run",
        f"--user-data-dir={folder}",
        *(f"--disable-{what}" for what in quiet),
        *options,
    ):
        chosen.add_argument(option)
    driver = webdriver.Chrome(options=chosen, service=service.Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
