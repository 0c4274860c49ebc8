# Lockstep's programs on CPUs, in a small image:
#
#     docker build -t lockstep .
#     docker run --rm -v "$PWD/data:/data:ro" lockstep train_images --data /data/mnist --replicas 2
#
# For GPUs, build on the machine itself (docs/building.md#cuda): it needs NVIDIA's driver and no CUDA toolkit.

# Debian 12, always the same image: a tag alone may name another one tomorrow. docs/building.md#docker says how to take a newer one.
ARG BASE=debian:bookworm-20260918-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251

FROM ${BASE} AS build
ENV LOCKSTEP_CACHE=/opt LOCKSTEP_CUDA=OFF
WORKDIR /src
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# First what changes rarely: packages and LibTorch.
COPY scripts/lib.sh scripts/
COPY scripts/packages scripts/packages
RUN source scripts/lib.sh; need_packages "${packages_to_build[@]}"; need_libtorch
COPY . .
RUN source scripts/lib.sh; need_libtorch; \
    configure release -DLOCKSTEP_BUILD_TESTS=OFF -DLOCKSTEP_BUILD_BENCHMARKS=OFF; \
    build release; \
    cmake --install build/release --prefix /opt/lockstep
# Of LibTorch's libraries those that the programs load, where they look for them.
RUN mkdir /runtime; \
    for program in /opt/lockstep/bin/*; do ldd "$program" || true; done | awk -v cache="$LOCKSTEP_CACHE/libtorch-" 'index($3, cache) == 1 { print $3 }' \
      | xargs realpath | sort -u | xargs cp --parents -t /runtime; \
    cp --parents -r -t /runtime /opt/lockstep/bin /opt/lockstep/libexec

FROM ${BASE}
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
       libcurl4 libfmt9 libipsec-mb1 libjemalloc2 libjpeg62-turbo libpcre2-8-0 libpng16-16 libprometheus-cpp-pull1.0 libssl3 libutf8proc2 libwebp7 libwebpdemux2 libzip4 libzstd1 python3 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home lockstep
COPY --from=build /runtime /
ENV PATH=/opt/lockstep/bin:$PATH
USER lockstep
WORKDIR /home/lockstep
CMD ["train_images", "--help"]
