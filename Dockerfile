# Tags can be moved: who wants the very same bytes each time names a digest here (docs/how-to/production.md).
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY deploy/requirements-build.txt ./
RUN pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY abeyance abeyance
COPY workflows workflows
COPY activities activities
COPY api api
RUN pip wheel --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels .

FROM ${PYTHON_IMAGE}
# Every package by its hash, and none that would run code of its own to be built. `make lock` writes the
# list, which also says what the image can do beyond the bare package. The list is complete: pip would look
# for extras of its packages (`google-auth[requests]`) in newer releases, which have no hash here.
COPY deploy/requirements.txt /tmp/requirements.txt
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r /tmp/requirements.txt \
    && pip install --no-cache-dir --no-deps --no-index /tmp/wheels/*.whl \
    && pip check \
    && rm -r /tmp/wheels /tmp/requirements.txt \
    && useradd --system --uid 10001 --no-create-home abeyance \
    && install --directory --owner=abeyance --mode=700 /blobs
USER 10001

# Graphs are mounted or copied here. Nothing of our source is: the folders `workflows`, `activities`
# and `api` of a user mean what the user says (docs/internals/adr/0001-three-links.md).
WORKDIR /graphs
ENV PYTHONPATH=/graphs PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

ENTRYPOINT ["abeyance"]
CMD ["--help"]
