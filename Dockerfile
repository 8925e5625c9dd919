# Two images:
#   docker build --target broker   -t ottla .            a broker, and the command line `ottla` with the console
#   docker build --target pipeline -t ottla-pipeline .   the same with Spark and Java, for the jobs
# Without a target it is the broker. Packages are those of requirements.lock, checked by their hashes.

# To pin the base to what you have checked, give its digest:
#   docker buildx imagetools inspect python:3.11-slim
#   docker build --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:... .
ARG PYTHON_IMAGE=python:3.11-slim

# The public image leaves the standard library uncompiled, and who is not root cannot keep what he compiles: every
# health check would begin with that.
FROM ${PYTHON_IMAGE} AS python
RUN python -m compileall -q -x '/(site-packages|ensurepip|idlelib|lib2to3|turtledemo|test|tests)/' /usr/local/lib/python3.11

FROM ${PYTHON_IMAGE} AS packages
WORKDIR /source
COPY pyproject.toml requirements.lock ./
COPY scripts/locked_requirements.py scripts/
RUN python scripts/locked_requirements.py --only setuptools > /tmp/build.txt \
 && python scripts/locked_requirements.py --extra security --extra console --extra schema > /tmp/requirements.txt \
 && pip install --no-cache-dir --require-hashes --requirement /tmp/build.txt \
 && pip install --no-cache-dir --prefix /packages --no-build-isolation --require-hashes \
      --requirement /tmp/requirements.txt

FROM packages AS broker-packages
COPY . .
RUN pip install --no-cache-dir --prefix /packages --no-deps --no-build-isolation .

FROM python AS broker
LABEL org.opencontainers.image.title="Ottla" \
      org.opencontainers.image.description="A message broker that speaks the Kafka protocol" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0.dev0"
# The data belongs to a number, so that a volume keeps its owner over images.
RUN useradd --uid 10001 --no-create-home --home-dir /var/lib/ottla --shell /usr/sbin/nologin ottla \
 && install --directory --owner ottla --group ottla /var/lib/ottla \
 && install --directory --owner ottla --group ottla --mode 700 /etc/ottla/security /etc/ottla/zookeeper
COPY --from=broker-packages /packages /usr/local
COPY config/container.properties /etc/ottla/server.properties
ENV PYTHONUNBUFFERED=1
USER ottla
WORKDIR /var/lib/ottla
VOLUME /var/lib/ottla
# Kafka; metrics and health; the console, if `ottla console` runs in place of the broker.
EXPOSE 9092 9644 8080
# A clean stop hands the leaderships over first: give it 30 seconds or more (`docker stop -t`).
STOPSIGNAL SIGTERM
# An open port is not yet a broker: ask for its versions, and whether it knows its cluster. Where 9092 is not a
# listener without security, OTTLA_BOOTSTRAP_SERVERS names another one.
HEALTHCHECK --interval=10s --timeout=15s --start-period=30s --retries=6 \
  CMD ["ottla", "check", "health", "--local", "--timeout", "12"]
ENTRYPOINT ["python", "-m", "ottla.broker"]
CMD ["--config", "/etc/ottla/server.properties"]

FROM packages AS pipeline-packages
RUN python scripts/locked_requirements.py --extra pipeline > /tmp/requirements.txt \
 && pip install --no-cache-dir --prefix /packages --no-build-isolation --require-hashes \
      --requirement /tmp/requirements.txt
COPY . .
RUN pip install --no-cache-dir --prefix /packages --no-deps --no-build-isolation .

FROM python AS pipeline
LABEL org.opencontainers.image.title="Ottla pipeline" \
      org.opencontainers.image.description="The Spark jobs of Ottla" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0.dev0"
# Debian's packages of Java link manual pages, whose folder slim images do not have.
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update --quiet \
 && apt-get install --yes --quiet --no-install-recommends default-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home --home-dir /var/lib/ottla-pipeline --shell /usr/sbin/nologin ottla
COPY --from=pipeline-packages /packages /usr/local
ENV PYTHONUNBUFFERED=1
USER ottla
WORKDIR /var/lib/ottla-pipeline
# Checkpoints and archives.
VOLUME /var/lib/ottla-pipeline
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "ottla.pipeline"]
CMD ["--help"]

FROM broker
