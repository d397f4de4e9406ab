# docker build -t jaxformer . && docker run --rm -it jaxformer
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends make git \
    && rm -rf /var/lib/apt/lists/*
# A config is a program, so nothing runs as root.
RUN useradd --create-home researcher && install -d -o researcher /jaxformer /jaxformer/runs
USER researcher
WORKDIR /jaxformer
COPY --chown=researcher . .
RUN make venv
ENV PATH="/jaxformer/.venv/bin:$PATH"
VOLUME /jaxformer/runs
CMD ["jaxformer", "--help"]
