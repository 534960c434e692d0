# The image of a broker: `docker build -t kbroker .`, then docs/compose.yaml or `docker run -p 127.0.0.1:9092:9092 kbroker`.
# compat_tests/test_dockerfile.py runs these steps where no container daemon answers.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS builder
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir "setuptools>=77" "Cython>=3.1"
WORKDIR /src
COPY . .
# The sdist first: the wheel is built from what a release holds, not from what lies in the checkout.
RUN KBROKER_SKIP_CORE=1 python setup.py --quiet sdist --dist-dir /sdist
RUN pip wheel --no-cache-dir --no-build-isolation --wheel-dir /wheels /sdist/kbroker-*.tar.gz
RUN python -m venv --without-pip /opt/kbroker \
    && pip --python /opt/kbroker/bin/python install --no-cache-dir --no-index --find-links /wheels kbroker

FROM python:${PYTHON}-slim
COPY --from=builder /opt/kbroker /opt/kbroker
RUN groupadd --gid 1000 kbroker \
    && useradd --uid 1000 --gid kbroker --no-create-home --home-dir /var/lib/kbroker kbroker \
    && install --directory --owner=kbroker --group=kbroker /var/lib/kbroker
# Every Kafka setting can be given as a KAFKA_ variable (docs/settings.md). Clients connect to the advertised address: localhost
# suits a published port; clients in other containers need a listener that advertises this container's name (docs/compose.yaml).
ENV PATH=/opt/kbroker/bin:$PATH \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_LOG_DIRS=/var/lib/kbroker
USER kbroker
WORKDIR /var/lib/kbroker
VOLUME /var/lib/kbroker
EXPOSE 9092
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["kbroker", "ping"]
ENTRYPOINT ["kbroker"]
CMD ["start"]
