# The sidecar's image: the sidecar under two names and the command spillway, static, no shell, not root. `make release` makes the same
# without a container engine.
#
#   docker build -t spillway --build-arg VERSION=$(git describe --tags --always) .
#   docker run --rm -p 8081:8081 -e GRPC_HOST=0.0.0.0 -e RULES=/rules -v "$PWD/examples/rules:/rules:ro" spillway

FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src
# Modules have a layer of their own, which a change of code does not touch.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ENV CGO_ENABLED=0
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.release=$VERSION" -o /out/bin/ ./cmd/sidecar ./cmd/spillway
# Where deployments start /bin/ratelimit it takes the reference server's place: under that name it listens on every interface.
RUN ln /out/bin/sidecar /out/bin/ratelimit

FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="Spillway" \
      org.opencontainers.image.description="A rate-limiting sidecar for Envoy: rate limit service and ext_authz" \
      org.opencontainers.image.source="https://github.com/spillway-mesh/spillway" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY LICENSE /licenses/spillway
COPY --from=build /out/bin/ /bin/
USER 65532:65532
# /json and probes; the rate limit service and ext_authz; metrics, rules and profiles.
EXPOSE 8080 8081 6070
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s --retries=3 CMD ["/bin/sidecar", "healthcheck"]
ENTRYPOINT ["/bin/sidecar"]
