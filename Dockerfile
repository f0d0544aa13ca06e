FROM python:3.11.13-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY abeyance abeyance
COPY workflows workflows
COPY activities activities
COPY api api
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11.13-slim-bookworm
# What the image can do beyond the bare package: agents with their providers, traces over OTLP, rules in
# CLIPS, and storage in a bucket.
ARG EXTRAS=agents,otel,rules,s3
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir -c /tmp/constraints.txt "$(echo /tmp/wheels/*.whl)[${EXTRAS}]" \
    && rm -r /tmp/wheels /tmp/constraints.txt \
    && useradd --system --uid 10001 --no-create-home abeyance \
    && install --directory --owner=abeyance --mode=700 /blobs
USER 10001

# Graphs are mounted or copied here. Nothing of our source is: the folders `workflows`, `activities`
# and `api` of a user mean what the user says (docs/adr/0001-three-links.md).
WORKDIR /graphs
ENV PYTHONPATH=/graphs PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

ENTRYPOINT ["abeyance"]
CMD ["--help"]
