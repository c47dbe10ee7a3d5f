# docker build -t attnlab .
# docker run --rm -v "$PWD/outputs:/attnlab/outputs" attnlab               trains the first model
# docker run --rm attnlab make test                                        installs what the tests need, and runs them
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /attnlab
COPY . .
RUN make .venv/installed
CMD ["make", "train"]
