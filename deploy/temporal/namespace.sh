#!/bin/sh
# Makes the namespace, once the server can. `abeyance setup` sets how long ended runs are retained.
set -eu

tries=30
until temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 30d; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
        echo "$TEMPORAL_ADDRESS did not make the namespace $TEMPORAL_NAMESPACE within a minute" >&2
        exit 1
    fi
    sleep 2
done
