"""A commit that is ready is built twice with the same bytes; its tag stays if it can be verified."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
RELEASE = (sys.executable, "deploy/release.py")


def git(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=checkout, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a clone whose changelog is ready for a release."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--no-tags", str(ROOT), str(clone))
    # The tests also try a `release.py` that is not committed yet.
    (clone / "deploy" / "release.py").write_bytes((ROOT / "deploy" / "release.py").read_bytes())
    changes = clone / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("## Unreleased", "## 0.1.0 (2027-01-31)"))
    for name, value in (("name", "ada"), ("email", "ada@example.com"), ("signingkey", "")):
        git(clone, "config", f"user.{name}", value)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "release")
    return clone


def release(checkout: Path) -> tuple[int, str]:
    done = subprocess.run(
        RELEASE, cwd=checkout, capture_output=True, text=True, check=False, timeout=500
    )
    return done.returncode, done.stdout + done.stderr


def sign_with(checkout: Path, *, known: bool) -> None:
    key = checkout.parent / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60
    )
    signers = checkout.parent / "signers"
    public = key.with_suffix(".pub").read_text()
    signers.write_text(f"ada@example.com {public}" if known else "")
    for name, value in (
        ("gpg.format", "ssh"),
        ("user.signingkey", str(key)),
        ("gpg.ssh.allowedSignersFile", str(signers)),
    ):
        git(checkout, "config", name, value)


def test_an_unready_checkout_is_not_released(checkout: Path) -> None:
    changes = checkout / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("## 0.1.0 (2027-01-31)", "## Unreleased"))
    unsaved = release(checkout)
    git(checkout, "commit", "--quiet", "--all", "--message", "not yet")
    unnamed = release(checkout)
    git(checkout, "tag", "v0.1.0")
    repeated = release(checkout)

    assert [unsaved[0], unnamed[0], repeated[0]] == [1, 1, 1]
    assert "the checkout has changes (CHANGELOG.md, ...): commit them" in unsaved[1]
    assert "CHANGELOG.md has no section `## 0.1.0 (YYYY-MM-DD)`" in unnamed[1]
    assert "v0.1.0 was released before" in repeated[1]
    assert not (checkout / "out").exists()


def test_a_release_is_built_with_its_sums_and_tagged_by_a_key_that_is_known(checkout: Path) -> None:
    sign_with(checkout, known=True)

    code, said = release(checkout)

    assert code == 0, said
    out = checkout / "out" / "dist"
    names = {"abeyance-0.1.0-py3-none-any.whl", "abeyance-0.1.0.tar.gz", "SHA256SUMS"}
    assert {each.name for each in out.iterdir()} == names
    for line in (out / "SHA256SUMS").read_text().splitlines():
        known, _, name = line.partition("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == known
    assert "tagged v0.1.0, and verified its signature" in said
    assert git(checkout, "tag", "--list") == "v0.1.0\n"


def test_a_tag_that_nobody_can_verify_does_not_stay(checkout: Path) -> None:
    sign_with(checkout, known=False)

    code, said = release(checkout)

    assert (code, git(checkout, "tag", "--list")) == (1, "")
    assert "the signature of v0.1.0 cannot be verified" in said
