#!/bin/sh
# Makes Temporal's two databases, and brings their tables up to the version of the server. What is
# there already stays: the script may be repeated.
set -eu

for each in temporal:temporal temporal_visibility:visibility; do
    database=${each%:*}
    schema=/etc/temporal/schema/postgresql/v12/${each#*:}/versioned
    temporal-sql-tool --database "$database" create-database
    temporal-sql-tool --database "$database" setup-schema --version 0.0
    temporal-sql-tool --database "$database" update-schema --schema-dir "$schema"
done
