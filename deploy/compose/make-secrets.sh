#!/bin/sh
# Makes the secrets that docker-compose.yml mounts, at random, in deploy/secrets. Those that are there stay.
set -eu
cd "$(dirname "$0")/.."

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

keep() { # keep NAME: standard input becomes the secret, unless it is there
    if [ -e "secrets/$1" ]; then
        cat > /dev/null
    else
        cat > "secrets/$1"
        chmod 444 "secrets/$1" # containers read it as users of their own; the folder is closed to others
        echo "made deploy/secrets/$1"
    fi
}

mkdir -p secrets
chmod 700 secrets
random | keep postgres_password
random | keep grafana_password
random | keep prometheus_token
printf 'operator admin %s\nviewer prometheus %s\n' "$(random)" "$(cat secrets/prometheus_token)" | keep api_tokens
random | keep s3_secret_key
secret=$(cat secrets/s3_secret_key)
printf '[default]\naws_access_key_id = kvstrata\naws_secret_access_key = %s\n' "$secret" | keep s3_credentials
printf '{"identities": [{"name": "kvstrata", "credentials": [{"accessKey": "kvstrata", "secretKey": "%s"}], "actions": ["Admin", "Read", "Write", "List"]}]}\n' \
    "$secret" | keep s3_identities
