# The image of billhook: static programs, certificate authorities and nothing else. `cargo xtask image` builds the same image
# without a container engine, and the first stage here uses it to build the files.
FROM docker.io/library/rust:1.95.0-bookworm AS build
# The compiler that this image contains: rustup would install the components for development that rust-toolchain.toml names.
ENV RUSTUP_TOOLCHAIN=1.95.0
# helm is built from a Go module.
COPY --from=docker.io/library/golang:1.26-bookworm /usr/local/go /usr/local/go
ENV PATH=/usr/local/go/bin:/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /billhook
COPY . .
RUN cargo xtask image --layers /layers

FROM scratch
COPY --from=build /layers/base /
COPY --from=build /layers/helm /
COPY --from=build /layers/billhook /
LABEL org.opencontainers.image.description="Ordered, explainable deployment and deletion for Kubernetes"
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.title="billhook"
LABEL org.opencontainers.image.version="0.1.0"
ENV PATH=/usr/local/bin
USER 65532:65532
VOLUME ["/tmp"]
WORKDIR /
ENTRYPOINT ["/usr/local/bin/billhook"]
