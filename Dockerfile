# duesweep with Java for Spark and ODBC for SQL Server. `docker build -t duesweep .`, then `duesweep schedule kubernetes`.
FROM python:3.11-slim-bookworm AS build

# Debian keeps only the newest version of each package, so none is pinned. Spark resolves its jars with Java.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock jars.lock ./
COPY scripts/fetch_jars.py scripts/
COPY lib lib
# The versions of the lock, without the packages that only tests need.
RUN sed -n 's/^\([A-Za-z0-9._-]*==[^\\]*\).*/\1/p' requirements.lock > versions.txt \
    && python -m venv /opt/duesweep \
    && /opt/duesweep/bin/pip install --no-cache-dir --constraint versions.txt '.[otel]' \
    && /opt/duesweep/bin/python scripts/fetch_jars.py /opt/duesweep/jars

FROM python:3.11-slim-bookworm

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless libodbc2 libgssapi-krb5-2 procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /home/duesweep duesweep
COPY --from=build /opt/duesweep /opt/duesweep

ENV PATH=/opt/duesweep/bin:$PATH \
    DUESWEEP_JARS=/opt/duesweep/jars \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
# The default configuration is duesweep.toml there. A read-only file system needs a writable /tmp.
WORKDIR /etc/duesweep
ENTRYPOINT ["duesweep"]
CMD ["watch"]
