#!/bin/sh
# Runs kvstrata. Where a database's password is mounted as a file, it is given to libpq the way it takes
# it: in a file of its own format that nobody else may read.
set -eu

password=${KVSTRATA_POSTGRES_PASSWORD_FILE:-}
if [ -n "$password" ]; then
    umask 077
    PGPASSFILE=$(mktemp)
    export PGPASSFILE
    printf '*:*:*:*:%s\n' "$(cat "$password")" > "$PGPASSFILE"
fi
exec kvstrata "$@"
