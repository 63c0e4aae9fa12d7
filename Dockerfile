# duesweep with Java for Spark and ODBC for SQL Server. `docker build -t duesweep .`, then conf/schedule/kubernetes.yaml.
FROM python:3.11-slim-bookworm AS build

WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY lib lib
# The versions of the lock, without the packages that only tests need; then Spark's jars.
RUN sed -n 's/^\([A-Za-z0-9._-]*==[^\\]*\).*/\1/p' requirements.lock > versions.txt \
    && python -m venv /opt/duesweep \
    && /opt/duesweep/bin/pip install --no-cache-dir --constraint versions.txt '.[java,otel,spark,sqlserver]' \
    && DUESWEEP_JARS=/opt/duesweep/jars /opt/duesweep/bin/python -m duesweep.drivers.spark_start

FROM python:3.11-slim-bookworm

# Debian keeps only the newest version of each package, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libodbc2 libgssapi-krb5-2 \
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
