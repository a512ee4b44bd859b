FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/opensession
COPY requirements-replicas.lock ./
RUN /opt/opensession/bin/pip install --no-cache-dir --requirement requirements-replicas.lock
COPY pyproject.toml README.md ./
COPY migrations migrations
COPY app app
RUN /opt/opensession/bin/pip install --no-cache-dir --no-deps . \
 && /opt/opensession/bin/pip uninstall --yes pip


FROM python:3.12-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bubblewrap git \
 && rm -rf /var/lib/apt/lists/* \
 && git config --system --add safe.directory '*' \
 && useradd --create-home --uid 1000 opensession \
 && install --directory --mode 1777 /data /workspace
COPY --from=build /opt/opensession /opt/opensession
ENV PATH=/opt/opensession/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OPENSESSION_DATA_DIR=/data
USER opensession
WORKDIR /workspace
VOLUME /data
EXPOSE 4096
HEALTHCHECK --interval=30s --timeout=5s --start-period=15s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:4096/global/health')"]
ENTRYPOINT ["opensession"]
# Beyond loopback the server starts only with OPENCODE_SERVER_PASSWORD set:
#   docker run -e OPENCODE_SERVER_PASSWORD=… -p 127.0.0.1:4096:4096 -v "$PWD:/workspace" -v opensession:/data opensession
CMD ["serve", "--hostname", "0.0.0.0", "--port", "4096"]
