# The scheduler's image: the locked run-time libraries, the scheduler and the packages of this repository that it imports, nothing to build or draw with.
#
#   docker build -t agent-scheduler:0.1.0 .
#
# A release pins the base by digest, which is looked up when the release is made:
#   docker build --build-arg PYTHON_IMAGE=python:3.13-slim-trixie@sha256:... -t agent-scheduler:0.1.0 .
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
# The locks first: these layers are made anew only when a lock changes. Wheels only: nothing runs a setup script.
# The root file system is read-only later, so byte code that is not there now would be made at every start;
# unchecked-hash keeps it valid whatever the files' times become.
COPY requirements/build.lock requirements/run.lock requirements/
RUN python -m venv tools \
 && tools/bin/pip install --require-hashes --only-binary :all: -r requirements/build.lock \
 && python -m venv --without-pip /opt/venv \
 && tools/bin/pip --python /opt/venv/bin/python install \
      --require-hashes --only-binary :all: --no-compile -r requirements/run.lock \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib
COPY LICENSE pyproject.toml README.md ./
COPY src src
COPY packages/apimachinery packages/apimachinery
COPY packages/kube-client packages/kube-client
COPY requirements/*.py requirements/
# The last lines: an image that has something else than the lock says, or that cannot start, is not made.
RUN tools/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir dist packages/apimachinery packages/kube-client . \
 && tools/bin/pip --python /opt/venv/bin/python install --no-deps --no-index --no-compile dist/*.whl \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash \
      /opt/venv/lib/python3*/site-packages/agent_scheduler /opt/venv/lib/python3*/site-packages/apimachinery \
      /opt/venv/lib/python3*/site-packages/kube_client \
 && /opt/venv/bin/python -m requirements.sbom --installed --output agent-scheduler.cdx.json \
 && /opt/venv/bin/agent-scheduler --version

FROM ${PYTHON_IMAGE}
# Not even pip, while it removes itself: compileall would leave what it finds, which is valid for one time of the file only.
ENV PYTHONDONTWRITEBYTECODE=1
# The base has pip, for which a running scheduler has no use, and its standard library comes without byte code.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip \
 && stdlib=$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && rm -rf "$stdlib/ensurepip" \
 && python -m compileall -q --invalidation-mode unchecked-hash "$stdlib"
COPY --from=build /opt/venv /opt/venv
COPY --from=build /build/agent-scheduler.cdx.json /usr/share/doc/agent-scheduler/
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1
# A number, so that a cluster can see that it is not root.
USER 65532:65532
WORKDIR /
EXPOSE 10251
# The process itself is PID 1 and handles SIGTERM.
ENTRYPOINT ["agent-scheduler"]
CMD ["run"]
