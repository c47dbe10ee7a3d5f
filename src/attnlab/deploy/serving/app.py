"""ASGI application: the page, the JSON interface and its OpenAPI description, limits and access control."""

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attnlab import __version__
from attnlab.deploy.serving.models import Map, ServedModel
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.files.terminal import escape_control_characters
from attnlab.report import html as page
from attnlab.settings import Intervention

FOLDER = Path(__file__).parent
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""Host names that requests may have if the server has no token."""
MAX_BODY = 2**20  # Largest body of a request, in bytes

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}

Text = Annotated[str, Field(max_length=1000)]
BeamSize = Annotated[int, Field(ge=1, le=20)]


class TranslationRequest(BaseModel):
    """Sentences to translate, and how."""

    model_config = ConfigDict(extra="forbid")

    sentences: Annotated[list[Text], Field(min_length=1, max_length=64, description="source sentences")]
    models: Annotated[list[str] | None, Field(min_length=1, description="names; all by default")] = None
    beam_size: Annotated[BeamSize | None, Field(description="that of the run by default")] = None
    nbest: Annotated[BeamSize, Field(description="hypotheses per sentence; enlarges the beam if needed")] = 1
    prefixes: Annotated[
        list[Text] | None, Field(description="for each sentence, the text that its translation starts with")
    ] = None
    intervention: Annotated[Intervention | None, Field(description="replacement of the weights")] = None
    map: Annotated[Map, Field(description="what `attention` holds")] = "weights"

    @model_validator(mode="after")
    def _has_a_prefix_for_each_sentence(self) -> Self:
        if self.prefixes is not None and len(self.prefixes) != len(self.sentences):
            raise ValueError(f"{len(self.prefixes)} prefixes for {len(self.sentences)} sentences")
        return self


class Translation(BaseModel):
    """A translation of one sentence."""

    text: str
    score: Annotated[float, Field(description="length-normalised log-probability, with reranking")]
    log_p: Annotated[float, Field(description="natural logarithm of its probability given the source")]
    p: Annotated[float, Field(description="its probability given the source")]
    p_beam: Annotated[float | None, Field(description="p divided by the sum over the beam")]
    tokens: Annotated[list[str], Field(description="the last one is <eos>, also at the maximum length")]
    probabilities: Annotated[list[float] | None, Field(description="of the tokens, given the ones before")]
    source_tokens: list[str]
    attention: Annotated[list[list[float]] | None, Field(description="the map: a row per target token")]


class ModelResult(BaseModel):
    """Translations by one model: for each sentence its hypotheses, best first."""

    model: str
    predictions: list[list[Translation]]


class TranslationResponse(BaseModel):
    """Translations by every requested model."""

    results: list[ModelResult]


class ModelDescription(BaseModel):
    """A trained model of this server."""

    name: str
    mechanism: Annotated[str, Field(description="class of its attention mechanism")]
    beam_size: Annotated[int, Field(description="beam size of the run")]
    interventions: list[str]
    reads_features: Annotated[bool, Field(description="sentences are TEXT<TAB>FEATURES")]


class Error(BaseModel):
    """Reason why a request was refused."""

    detail: str


ERRORS: dict[int | str, dict[str, Any]] = {key: {"model": Error} for key in (400, 401, 404, 411, 413, 422)}


def create_app(models: Sequence[ServedModel], *, token: str | None = None) -> FastAPI:
    """Create the ASGI application of the server.

    One request is translated at a time, so that interventions do not mix. The number of those that wait is
    limited by the number of connections (uvicorn's `limit_concurrency`).

    Args:
        models: the models, with unique names.
        token: if given, requests other than for the page need the header `Authorization: Bearer TOKEN`, and
            any host name is accepted; else only names of this machine are, so that a page of another site
            cannot reach the server by a name that resolves to it.
    """
    by_name = {served.name: served for served in models}
    turn = asyncio.Lock()
    app = FastAPI(
        title="attnlab",
        version=__version__,
        description="Translation by trained models, with their attention weights",
        docs_url=None,  # these pages load scripts from other servers
        redoc_url=None,
    )
    if token is None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(LOCAL_NAMES))
    app.add_middleware(Guard, token=token)
    app.exception_handler(RequestValidationError)(_explain_invalid)
    app.get("/", response_class=HTMLResponse, include_in_schema=False)(_index)

    @app.get("/api/models")
    async def list_models() -> list[ModelDescription]:
        """List the models of this server."""
        return [
            ModelDescription(
                name=served.name,
                mechanism=served.mechanism,
                beam_size=served.model.config.search.beam_size,
                interventions=list(served.interventions),
                reads_features=served.model.config.data.get("features_column") is not None,
            )
            for served in models
        ]

    @app.post("/api/translate", responses=ERRORS)
    async def translate(request: TranslationRequest, connection: Request) -> TranslationResponse:
        """Translate sentences by one or several models."""
        names = request.models or [*by_name]
        if unknown := [name for name in names if name not in by_name]:
            raise HTTPException(404, f"Unknown model {unknown}: choose from {', '.join(by_name)}")
        prefixes = request.prefixes or [""] * len(request.sentences)
        options = request.model_dump(include={"beam_size", "nbest", "intervention", "map"})
        results = []
        for name in dict.fromkeys(names):
            async with turn:
                if await connection.is_disconnected():
                    raise HTTPException(499, "The connection was closed")  # nobody receives it
                try:
                    rows = await run_in_threadpool(
                        by_name[name].translate, request.sentences, prefixes, **options
                    )
                except UserError as error:
                    raise HTTPException(400, str(error)) from error
            predictions = [[_to_json(best) for best in row] for row in rows]
            results.append(ModelResult(model=name, predictions=predictions))
        return TranslationResponse(results=results)

    return app


class Guard:
    """ASGI middleware: refuses requests without the token or with a large body, and adds headers."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("Authorization", "").encode()
        expected = given if self.token is None else f"Bearer {self.token}".encode()
        if request.url.path != "/" and not secrets.compare_digest(given, expected):
            return _error(401, "Give the token of this server: Authorization: Bearer TOKEN")
        length = request.headers.get("Content-Length")
        # The HTTP parser reads no more than Content-Length; a chunked body could be of any size
        if "Transfer-Encoding" in request.headers or (request.method == "POST" and length is None):
            return _error(411, "Send the Content-Length of the request")
        if int(length or 0) > MAX_BODY:
            return _error(
                413, f"The request is larger than {MAX_BODY:,} bytes: send fewer sentences at a time"
            )
        return None


def _error(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": escape_control_characters(detail)}, status)


async def _explain_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
    # The input is not repeated: JSON cannot encode NaN, nor UTF-8 a lone surrogate
    reasons = [(".".join(map(str, each["loc"][1:])), each["msg"]) for each in error.errors()]
    detail = "; ".join(": ".join(filter(None, reason)) for reason in reasons)
    return _error(422, detail)


async def _index() -> HTMLResponse:
    scripts = (page.HEAT_MAP, FOLDER / "page.js")
    title = "attnlab: outputs and attention weights"
    policy = f"{page.policy(scripts, images='data: blob:')}; connect-src 'self'; frame-ancestors 'none'"
    html = page.render(FOLDER, "index.html.j2", title=title, scripts=scripts)
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def _to_json(prediction: Prediction) -> Translation:
    weights = prediction.weights
    return Translation(
        text=prediction.hypothesis,
        score=prediction.score or 0.0,
        log_p=prediction.log_p or 0.0,
        p=prediction.p or 0.0,
        p_beam=prediction.p_beam,
        tokens=prediction.tokens,
        probabilities=prediction.probabilities,
        source_tokens=prediction.source_tokens,
        attention=None if weights is None or not weights.any() else weights.astype(float).round(4).tolist(),
    )
