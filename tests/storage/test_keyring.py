"""A key opens what it sealed; if that fails for any reason, the error names the key."""

from __future__ import annotations

import base64
import os

import pytest

from abeyance.errors import SettingsError
from abeyance.keyring import Keyring, NotSealed, WrongKey, owner_of
from abeyance.settings import Settings, load_settings
from abeyance.storage.blobs import MemoryBlobs
from abeyance.storage.encryption import EncryptedBlobs

KEYS = {name: name.encode().ljust(32, b"-") for name in ("old", "new")}


def written(*names: str) -> str:
    return ",".join(f"{name}:{base64.b64encode(KEYS[name]).decode()}" for name in names)


def test_a_sealed_text_is_opened_and_shows_nothing() -> None:
    ring = Keyring.parse(written("new"))
    for repeatable in (False, True):
        sealed = ring.seal(b"the secret" * 50, repeatable=repeatable)

        assert b"secret" not in sealed
        assert ring.open(sealed) == b"the secret" * 50


def test_only_what_is_to_be_kept_once_is_sealed_the_same_again() -> None:
    ring = Keyring.parse(written("new"))

    assert ring.seal(b"yes") != ring.seal(b"yes")
    assert ring.seal(b"yes", repeatable=True) == ring.seal(b"yes", repeatable=True)
    assert ring.seal(b"yes", repeatable=True)[-20:] != ring.seal(b"yea", repeatable=True)[-20:]
    other = Keyring({"new": os.urandom(32)})
    assert other.seal(b"yes", repeatable=True) != ring.seal(b"yes", repeatable=True)


def test_a_sealed_text_names_its_run_and_differs_by_run() -> None:
    ring = Keyring.parse(written("new"))
    one, two = (ring.seal(b"yes", run_id=run_id, repeatable=True) for run_id in ("run-1", "run-2"))

    assert [owner_of(each) for each in (one, two, ring.seal(b"yes"))] == ["run-1", "run-2", ""]
    assert one[-19:] != two[-19:], "one nonce for both would betray how they are authenticated"
    with pytest.raises(WrongKey, match="damaged"):
        ring.open(one.replace(b"run-1", b"run-2"))


def test_after_a_rotation_the_old_key_still_opens_and_the_new_one_seals() -> None:
    before = Keyring.parse(written("old")).seal(b"letter")
    rotated = Keyring.parse(written("new", "old"))

    assert rotated.open(before) == b"letter"
    with pytest.raises(WrongKey, match=r"key 'new', which this process lacks \(it has 'old'\)"):
        Keyring.parse(written("old")).open(rotated.seal(b"letter"))


def test_a_key_that_was_replaced_under_its_id_is_named() -> None:
    sealed = Keyring.parse(written("old")).seal(b"letter")

    with pytest.raises(WrongKey, match="cannot be decrypted with the key 'old'"):
        Keyring({"old": KEYS["new"]}).open(sealed)


def test_every_changed_bit_of_a_sealed_text_is_noticed() -> None:
    ring = Keyring.parse(written("new"))
    sealed = ring.seal(b"pay 10")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(WrongKey):
            ring.open(bytes(changed))
    for length in range(len(sealed)):
        with pytest.raises(WrongKey):
            ring.open(sealed[:length])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "entry 1 does not begin with a key id"),
        (written("new") + ",", "entry 2 does not begin"),
        (written("new").partition(":")[2], "entry 1 does not begin"),
        ("sp ace:aGk=", "entry 1 does not begin"),
        ("k:secret?", "the key 'k' is not base64"),
        ("k:c2VjcmV0", "the key 'k' has 6 bytes"),
        (written("new", "new"), "two keys have the id 'new'"),
    ],
)
def test_unusable_keys_are_refused_at_the_start_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    monkeypatch.setenv("ABEYANCE_ENCRYPTION_KEYS", text)

    with pytest.raises(SettingsError, match=f"ABEYANCE_ENCRYPTION_KEYS: .*{told}") as caught:
        load_settings()
    causes = f"{caught.value} {caught.value.__cause__}"
    assert not any(base64.b64encode(key).decode()[:20] in causes for key in KEYS.values())
    assert "c2VjcmV0" not in causes


def test_keys_are_not_shown_where_settings_are() -> None:
    assert "aGk" not in repr(Settings.model_construct(encryption_keys="k:aGk="))


async def test_blobs_are_encrypted_where_they_are_kept_and_each_once() -> None:
    kept = MemoryBlobs()
    blobs = EncryptedBlobs(kept, Keyring.parse(written("new")))
    ref = await blobs.put("run-1", b"the secret")

    assert await blobs.put("run-1", b"the secret") == ref
    assert b"secret" not in await kept.get(ref)
    assert await blobs.get(ref) == b"the secret"


async def test_blobs_from_before_encryption_are_read_and_encrypted_ones_never_without_their_key() -> (
    None
):
    kept = MemoryBlobs()
    without, rotated = (
        EncryptedBlobs(kept, Keyring({})),
        EncryptedBlobs(kept, Keyring.parse(written("new", "old"))),
    )
    early, late = await without.put("run-1", b"early"), await rotated.put("run-1", b"late")

    assert await rotated.get(early) == b"early"
    with pytest.raises(WrongKey, match=r"key 'new', which this process lacks \(it has none\)"):
        await without.get(late)


async def test_blobs_are_sealed_for_their_run_and_no_other_is_taken() -> None:
    kept = MemoryBlobs()
    blobs = EncryptedBlobs(kept, Keyring.parse(written("new")), is_required=True)
    ref = await blobs.put("run-1", b"the transcript")
    assert await blobs.get(ref) == b"the transcript"

    moved = await kept.put("run-2", await kept.get(ref))
    with pytest.raises(NotSealed, match="sealed for 'run-1'"):
        await blobs.get(moved)
    with pytest.raises(NotSealed, match="not encrypted"):
        await blobs.get(await kept.put("run-2", b"a transcript"))


def test_the_setting_without_a_key_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABEYANCE_ENCRYPTION_REQUIRED", "true")
    with pytest.raises(SettingsError, match="set ABEYANCE_ENCRYPTION_KEYS to id:key"):
        load_settings()
    monkeypatch.setenv("ABEYANCE_ENCRYPTION_KEYS", written("new"))
    assert load_settings().encryption_required
