"""The files of a run, which its questions show, over HTTP."""

from __future__ import annotations

import httpx
from sample_graphs import PIXEL
from stack import Api, new_id, problem
from temporal_site import Site

from abeyance.storage.blobs import reference


async def test_a_picture_is_shown_and_anything_else_is_downloaded(api: Api) -> None:
    _, (id_,) = await api.waiting("filed")
    payload = (await api.interrupt(id_))["payload"]

    assert (payload["picture"]["name"], payload["picture"]["type"]) == ("Beleg 1.png", "image/png")
    picture = await api.http.get(payload["picture"]["$file"])
    assert (picture.status_code, picture.content) == (200, PIXEL)
    assert picture.headers["content-type"] == "image/png"
    assert picture.headers["content-disposition"] == "inline; filename*=UTF-8''Beleg%201.png"
    page = await api.http.get(payload["page"]["$file"])
    assert page.content == b"<script>alert(1)</script>"
    assert page.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
    for each in (picture, page):
        assert each.headers["x-content-type-options"] == "nosniff"
        assert each.headers["content-security-policy"] == "default-src 'none'; sandbox"


async def test_only_files_of_the_run_are_read(api: Api, site: Site) -> None:
    run_id, (id_,) = await api.waiting("filed")
    other, _ = await api.waiting("gated")
    file_id = (await api.interrupt(id_))["payload"]["page"]["$file"].rpartition("/")[2]
    # Other blobs that a worker stores, such as a transcript, are not files.
    blob = await site.blobs.put(run_id, b"a transcript")
    assert blob == reference(run_id, b"a transcript")

    async def read(of: str, id_: str, **headers: str) -> httpx.Response:
        return await api.http.get(f"/runs/{of}/files/{id_}", headers=headers)

    for nothing in (blob.rpartition("/")[2], "0" * 64, "nothing"):
        problem(await read(run_id, nothing), 404, "not_found")
    problem(await read(other, file_id), 404, "not_found")
    problem(await read(new_id(), file_id), 404, "unknown_run")
    unread = {"X-Abeyance-Principal": "eve", "X-Abeyance-Capabilities": "runs:respond"}
    problem(await read(run_id, file_id, **unread), 403, "capability_required")
