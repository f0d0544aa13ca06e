#!/bin/sh
# Makes the database of the records, and the role that owns it and may connect to no other. What is there
# already stays, but for the role's password: the script may be repeated.
set -eu

# PGHOST, PGUSER and PGPASSWORD are those of who may make them.
psql --no-psqlrc --quiet --dbname=postgres --set=ON_ERROR_STOP=1 --set=password="$RECORDS_PASSWORD" <<'SQL'
SELECT 'CREATE ROLE abeyance' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'abeyance') \gexec
ALTER ROLE abeyance LOGIN PASSWORD :'password';
SELECT 'CREATE DATABASE abeyance OWNER abeyance ENCODING ''UTF8'' TEMPLATE template0'
    WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'abeyance') \gexec
SELECT format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', datname) FROM pg_database WHERE datallowconn \gexec
SQL
