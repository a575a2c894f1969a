# An image with manyscale and all its kernels compiled, run as a user without rights.
#
#   docker build -t manyscale .
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" manyscale run lulesh-64
#
# It serves as head and worker of a Ray cluster, too, and takes jobs (cluster_configs/host/kuberay.yaml).
# It reads and predicts. Traces of your own programs are recorded where these run (manyscale trace).

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY . .
# all kernels, for every x86-64 processor with AVX2; on other processors they are compiled at first use
RUN pip install --no-cache-dir --upgrade 'pip>=25.3' \
    && MANYSCALE_KERNELS=all pip wheel --no-cache-dir --no-deps --wheel-dir /wheels --build-constraint constraints.txt .

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="manyscale" \
      org.opencontainers.image.description="Predicts how long a parallel application takes on a machine that may not exist yet" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt "$(echo /wheels/*.whl)[cluster]" \
    && useradd --create-home --uid 1000 manyscale \
    && install --directory --mode=1777 /cache /work
# whoever runs it (--user) can write there
ENV XDG_CACHE_HOME=/cache \
    PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /work
ENTRYPOINT ["manyscale"]
CMD ["--help"]
