# The demo's engine, the admin API and the command line. docs/deploy.md says how it is built and run.
FROM python:3.11.13-slim-bookworm AS build

# The package index that has the CPU build of torch, as its own installation page names it. Without it
# pip takes the build it finds first, which may bring gigabytes of CUDA.
ARG TORCH_INDEX_URL=""
ENV PATH=/opt/kvstrata/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/kvstrata
COPY constraints.txt ./
RUN if [ -n "$TORCH_INDEX_URL" ]; then \
        pip install --no-cache-dir --index-url "$TORCH_INDEX_URL" --constraint constraints.txt torch; \
    fi
COPY pyproject.toml README.md LICENSE ./
COPY api api
COPY core core
COPY dashboard dashboard
COPY engines engines
COPY eventstore eventstore
COPY kernels kernels
COPY src src
COPY tiers tiers
RUN pip install --no-cache-dir --constraint constraints.txt '.[engine,tiers,api,postgres]'

FROM python:3.11.13-slim-bookworm

RUN groupadd --gid 10001 kvstrata \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/kvstrata kvstrata \
    && install --directory --owner 10001 --group 10001 /var/lib/kvstrata /var/cache/kvstrata
COPY --from=build /opt/kvstrata /opt/kvstrata
COPY --chmod=755 deploy/docker/entrypoint.sh /usr/local/bin/kvstrata-entrypoint
ENV PATH=/opt/kvstrata/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/var/cache/kvstrata
USER 10001:10001
WORKDIR /var/lib/kvstrata
# Compiled for the processor that builds; another one compiles anew at its first start.
RUN kvstrata warmup
EXPOSE 8420
ENTRYPOINT ["kvstrata-entrypoint"]
CMD ["--help"]
