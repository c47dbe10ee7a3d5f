"""The server: its JSON interface, limits, access control and page."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

import attnlab
from attnlab.cli.serve import make_server
from attnlab.deploy.serving.app import create_app
from attnlab.deploy.serving.models import ServedModel, load_models
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.files.run_directory import Run
from browser import browser
from commands import TINY_REVERSE
from commands import attnlab as command

LOCAL = "http://127.0.0.1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("serving")
    command("train", *TINY_REVERSE, "trainer.max_epochs=2", folder=folder)
    (directory,) = folder.glob("outputs/reverse/*")
    return Run(directory)


@pytest.fixture(scope="module")
def models(run: Run) -> list[ServedModel]:
    return load_models([str(run.directory), str(run.best)])


@pytest.fixture(scope="module")
def client(models: list[ServedModel]) -> Iterator[TestClient]:
    with TestClient(create_app(models), base_url=LOCAL) as client:
        yield client


def translate(client: TestClient | httpx.Client, *sentences: str, **options: Any) -> Any:
    response = client.post("/api/translate", json={"sentences": sentences, **options})
    assert response.status_code == 200, response.text
    return response.json()["results"]


@pytest.mark.slow
def test_models_are_listed_under_unique_names(client: TestClient) -> None:
    described = client.get("/api/models").json()
    assert [model["name"] for model in described] == ["additive-seed0", "additive-seed0 (2)"]
    assert described[0]["mechanism"] == "Additive"
    assert described[0]["reads_features"] is False
    assert described[0]["interventions"] == ["uniform", "shuffled", "argmax", "previous", "none"]


def test_translations_equal_those_of_the_python_interface(client: TestClient, run: Run) -> None:
    sentences = ["3 4 5", "6 7"]
    expected = attnlab.load(run).translate(sentences, beam_size=3)
    results = translate(client, *sentences, beam_size=3)
    assert [result["model"] for result in results] == ["additive-seed0", "additive-seed0 (2)"]
    for result in results:
        for (best,), prediction in zip(result["predictions"], expected, strict=True):
            assert (best["text"], best["tokens"]) == (prediction.hypothesis, prediction.tokens)
            assert best["source_tokens"] == prediction.source_tokens
            assert best["score"] == pytest.approx(prediction.score, abs=1e-5)
            assert best["attention"] == pytest.approx(prediction.weights, abs=1e-4)


def test_maps_of_explanations(client: TestClient, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "additive-seed0"
    model = attnlab.load(run)
    ((best,),) = translate(client, "3 4 5", models=[name])[0]["predictions"]
    for method in ("gradient", "integrated_gradients", "erasure"):
        ((shown,),) = translate(client, "3 4 5", models=[name], map=method)[0]["predictions"]
        assert (shown["text"], shown["tokens"]) == (best["text"], best["tokens"])
        expected = model.explain("3 4 5", best["text"], method)
        assert shown["attention"] == pytest.approx(expected.weights, abs=1e-4)
        assert shown["attention"] != best["attention"]
    served = ServedModel("m", model)
    output = replace(model.translate("3")[0], tokens=["<unk>", "<eos>"])
    with pytest.raises(UserError, match="reads the output as text, whose tokens are not those of this one"):
        served._explained(output, "3", "erasure")
    monkeypatch.setattr("attnlab.deploy.serving.models.MAX_EXPLAINED", 2)
    refused = client.post("/api/translate", json={"sentences": ["3 4 5"], "models": [name], "map": "erasure"})
    assert refused.status_code == 400
    assert "A map of erasure has at most 2 cells" in refused.text


def test_options_change_the_translation(client: TestClient) -> None:
    name = "additive-seed0"
    (own,) = translate(client, "3 4 5", models=[name])
    (uniform,) = translate(client, "3 4 5", models=[name], intervention="uniform")
    weights = uniform["predictions"][0][0]["attention"]
    assert all(weight == pytest.approx(1 / 3, abs=1e-4) for row in weights for weight in row)
    assert translate(client, "3 4 5", models=[name]) == [own]  # the intervention has ended
    (several,) = translate(client, "3 4 5", models=[name], nbest=3)
    scores = [prediction["score"] for prediction in several["predictions"][0]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    prefix = "6 6"
    (continued,) = translate(client, "3 4 5", models=[name], prefixes=[prefix])
    assert continued["predictions"][0][0]["text"].startswith(prefix)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"sentences": ["3"] * 65}, 422, "at most 64 items"),
        ({"sentences": ["3 " * 501]}, 422, "at most 1000 characters"),
        ({"sentences": ["3"], "prefixes": ["3 " * 501]}, 422, "at most 1000 characters"),
        ({"sentences": ["3"], "models": ["x" * 2**20]}, 413, "larger than 1,048,576 bytes"),
        ({"sentences": ["3"], "beam_size": 99}, 422, "less than or equal to 20"),
        ({"sentences": ["3"], "nbest": 99}, 422, "less than or equal to 20"),
        ({"sentences": ["3"], "models": ["../secret"]}, 404, "Unknown model"),
        ({"sentences": ["3"], "models": []}, 422, "at least 1 item"),
        ({"sentences": ["3"], "prefixes": []}, 422, "0 prefixes for 1 sentences"),
        ({"sentences": ["unknown"]}, 400, "unknown"),
        ({"sentences": [" "]}, 400, "at least one token"),
        ({"sentences": []}, 422, "at least 1 item"),
        ({"sentences": ["3"], "beam_size": 0}, 422, "greater than or equal to 1"),
        ({"sentences": ["3"], "beam": 3}, 422, "not permitted"),
        ({"sentences": ["3"], "intervention": "sort"}, 422, "uniform"),
        ({"sentences": "3"}, 422, "valid list"),
        ([], 422, "valid dictionary"),
    ],
    ids=repr,
)
def test_refused_requests(client: TestClient, body: Any, status: int, reason: str) -> None:
    response = client.post("/api/translate", json=body)
    assert response.status_code == status, response.text
    assert reason in response.json()["detail"]


def test_bodies_without_a_length_are_refused(client: TestClient) -> None:
    chunks = iter([b'{"sentences": ["3"]}'])
    response = client.post("/api/translate", content=chunks, headers={"Content-Type": "application/json"})
    assert response.status_code == 411, response.text


def test_files_of_the_machine_cannot_be_read(client: TestClient, run: Run) -> None:
    for path in ("/etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", f"/{run.best}", "/page.js"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x00\xff", "JSON decode error"),
        (b"{", "JSON decode error"),
        (rb'{"sentences": ["\ud800"]}', "sentences.0: Input should be a valid string"),
        (rb'{"sentences": ["3"], "\ud800": 1}', "Input should be a valid string"),
        (rb'{"sentences": ["3"], "prefixes": ["\udfff"]}', "prefixes.0: Input should be a valid string"),
        (b'{"sentences": ["3"], "nbest": Infinity}', "nbest: Input should be a"),
        (b'{"sentences": ["3"], "models": [NaN]}', "models.0: Input should be a valid string"),
    ],
)
def test_bodies_that_are_not_valid_json(
    models: list[ServedModel], run: Run, body: bytes, reason: str
) -> None:
    headers = {"Content-Type": "application/json"}
    with TestClient(create_app(models[:1]), base_url=LOCAL, raise_server_exceptions=False) as client:
        response = client.post("/api/translate", content=body, headers=headers)
    assert response.status_code == 422, response.text
    assert reason in response.json()["detail"]
    assert str(run.directory) not in response.text


def test_other_host_names_are_refused(client: TestClient) -> None:
    assert client.get("/api/models", headers={"Host": "attacker.example"}).status_code == 400


def test_token_is_needed(models: list[ServedModel]) -> None:
    app = create_app(models[:1], token="a secret")
    with TestClient(app, base_url="http://10.0.0.1") as client:
        assert client.get("/").status_code == 200  # the page itself holds nothing of the models
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "a secret"}):
            for path in ("/api/models", "/openapi.json"):
                assert client.get(path, headers=headers).status_code == 401
            assert client.post("/api/translate", json={}, headers=headers).status_code == 401
        assert client.get("/api/models", headers={"Authorization": "Bearer a secret"}).status_code == 200


def test_interface_is_described(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    assert set(description["paths"]) == {"/api/models", "/api/translate"}
    responses = description["paths"]["/api/translate"]["post"]["responses"]
    assert {"200", "400", "401", "404", "411", "413", "422"} <= set(responses)


@contextmanager
def served(models: list[ServedModel], connections: int = 128, **options: Any) -> Iterator[str]:
    """Run a real server in a thread; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = make_server(create_app(models, **options), connections)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def test_connections_beyond_the_limit_are_refused(models: list[ServedModel]) -> None:
    with served(models[:1], connections=3) as address, httpx.Client(base_url=address) as client:
        host = ("127.0.0.1", int(address.rpartition(":")[2]))
        translate(client, "3 4")
        with socket.create_connection(host), socket.create_connection(host):  # they send nothing
            assert httpx.get(f"{address}/api/models").status_code == 503
        while httpx.get(f"{address}/api/models").status_code == 503:
            time.sleep(0.05)
        translate(client, "3 4")


def test_a_long_head_and_a_wrong_length_are_refused(models: list[ServedModel]) -> None:
    long = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2**17
    both = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
    both += b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with served(models[:1]) as address:
        for request, status in ((long, b"400"), (both, b"411"), (both.replace(b": 2", b": x"), b"400")):
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 60) as connection:
                connection.sendall(request)
                assert connection.recv(100)[9:12] == status


class Recorder(ServedModel):
    """Records the sentences; waits in each translation until it may continue."""

    def __init__(self, name: str, model: attnlab.Model) -> None:
        super().__init__(name, model)
        self.translated: list[str] = []
        self.started, self.may_continue = threading.Event(), threading.Event()

    def translate(self, sentences: Sequence[str], *rest: Any, **options: Any) -> list[list[Prediction]]:
        self.translated.extend(sentences)
        self.started.set()
        assert self.may_continue.wait(60)
        return super().translate(sentences, *rest, **options)


def test_sentences_of_a_closed_connection_are_not_translated(models: list[ServedModel]) -> None:
    slow = Recorder("slow", models[0].model)

    def ask(sentence: str, timeout: float) -> int:
        body = {"sentences": [sentence]}
        return httpx.post(f"{address}/api/translate", json=body, timeout=timeout).status_code

    with served([slow]) as address, ThreadPoolExecutor(1) as thread:
        first = thread.submit(ask, "3", 60)
        assert slow.started.wait(60)
        with pytest.raises(httpx.ReadTimeout):
            ask("4", 0.5)  # it waits for the first one, then its client leaves
        slow.may_continue.set()
        assert first.result() == 200
        assert ask("5", 60) == 200
    assert slow.translated == ["3", "5"]


@pytest.mark.slow
def test_page_translates_while_typing(models: list[ServedModel], tmp_path: Path) -> None:
    with served(models, token="secret") as address, browser(tmp_path) as page:
        page.navigate(f"{address}/#token=secret")
        wait(page, "document.querySelectorAll('.card').length === 2")
        type_into(page, "#source", "3 4 5")
        wait(page, "document.querySelectorAll('.map svg').length === 2")
        own = page.each(".output", "e.textContent")
        assert own[0] == own[1] == models[0].model.translate("3 4 5")[0].hypothesis
        tokens = models[0].model.translate("3 4 5")[0].hypothesis.split()
        assert page.each(".card:first-child .map .rows span", "e.textContent")[: len(tokens)] == tokens
        assert page.each(".others", "e.textContent") == ["", ""]  # the beam is 1
        page.run("document.querySelector('#beam').value = 2")
        page.run("document.querySelector('#form').dispatchEvent(new Event('input'))")
        best, second = models[0].model.translate("3 4 5", nbest=2, beam_size=2)
        shares = [f"p = {each.p:#.3g}, {100 * each.p_beam:.0f} % of the beam" for each in (best, second)]
        wait(page, "document.querySelector('.others').textContent !== ''")
        assert page.each(".others", "e.textContent")[0] == f"{second.hypothesis} ({shares[1]}) "
        assert page.each(".card header small", "e.textContent")[0].endswith(f" · {shares[0]}")
        page.run("document.querySelector('#beam').value = 1")
        page.run("document.querySelector('#form').dispatchEvent(new Event('input'))")
        wait(page, "document.querySelector('.others').textContent === ''")
        page.point_at(".map .rows span")
        assert page.each(".readout", "e.textContent")[0].startswith(f"{tokens[0]} ← ")
        assert page.run("document.querySelector('.save button').click()") is None
        page.run("document.querySelector('#intervention').value = 'uniform'")
        page.run("document.querySelector('#form').dispatchEvent(new Event('input'))")
        page.point_at("h1")
        page.point_at(".map .rows span")
        wait(page, "/ 0.33, .* 0.33, .* 0.33$/.test(document.querySelector('.readout').textContent)")
        type_into(page, ".start input", "6 6")
        wait(page, "document.querySelector('.output').textContent.startsWith('6 6')")
        assert not page.each(".output", "e.textContent")[1].startswith("6 6")
        errors = "[...document.querySelectorAll('.card .error')]"
        type_into(page, ".start input", "unknown")
        wait(page, f"{errors}[0].textContent.includes('unknown')")
        assert [bool(text) for text in page.each(".output", "e.textContent")] == [False, True]
        assert page.each(".card .error", "e.textContent")[1] == ""
        type_into(page, "#source", "<b>")
        wait(page, f"{errors}.every((e) => e.textContent.includes('<b>'))")
        assert page.run("document.querySelector('.error b')") is None
        assert page.each(".frame", "e.children.length") == [0, 0]
        assert page.each(".save", "e.checkVisibility()") == [False, False]
        page.screenshot(tmp_path / "page.png")
        failed = [json.loads(error) for error in page.errors()]
        assert all(error.get("source") == "network" for error in failed)  # the refused sentence
        assert all(url.startswith(("http://127.0.0.1", "data:")) for url in page.requests())


def wait(page: Any, condition: str) -> None:
    deadline = time.monotonic() + 60
    while not page.run(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


def type_into(page: Any, selector: str, text: str) -> None:
    field = f"document.querySelector({json.dumps(selector)})"
    page.run(f"{field}.value = ''; {field}.focus()")
    page.call("Input.insertText", text=text)
