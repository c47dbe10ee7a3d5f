"""ASGI application: the page, the JSON interface and its OpenAPI description, limits and access control."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from attnlab import __version__
from attnlab.deploy.serving.batching import Batcher, QueueFullError
from attnlab.deploy.serving.limits import BodyLimit, Limits
from attnlab.deploy.serving.models import Map, Options, ServedModel, Source
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.files.terminal import escape_control_characters
from attnlab.nn.attention.interventions import Intervention
from attnlab.report import html as page

FOLDER = Path(__file__).parent
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""Host names that requests may have if the server has no token."""
CLOSED = 499
"""Status of a request whose client closed the connection. Nobody receives it."""

Result = TypeVar("Result")


class TranslationRequest(BaseModel):
    """Sentences to translate, and how."""

    model_config = ConfigDict(extra="forbid")

    sentences: Annotated[list[str], Field(min_length=1, description="source sentences")]
    models: Annotated[
        list[str] | None, Field(description="names of models, see /api/models; all by default")
    ] = None
    beam_size: Annotated[
        int | None, Field(ge=1, description="beam size; 1 is greedy search; that of the run by default")
    ] = None
    nbest: Annotated[int, Field(ge=1, description="hypotheses per sentence; enlarges the beam if needed")] = 1
    prefixes: Annotated[
        list[str] | None, Field(description="for each sentence, the text that its translation starts with")
    ] = None
    intervention: Annotated[
        Intervention | None, Field(description="replacement of the attention weights")
    ] = None
    map: Annotated[
        Map,
        Field(
            description="what `attention` holds: the attention weights; the share of each source token in "
            "the gradients or integrated gradients; or the drop of a token's probability if a source token "
            "is erased"
        ),
    ] = "weights"


class Translation(BaseModel):
    """A translation of one sentence."""

    text: str
    score: Annotated[float, Field(description="length-normalised log-probability")]
    tokens: Annotated[
        list[str], Field(description="target tokens; the last one is <eos>, also at the maximum length")
    ]
    probabilities: Annotated[
        list[float] | None, Field(description="of the target tokens, each given the ones before")
    ]
    source_tokens: list[str]
    attention: Annotated[
        list[list[float]] | None,
        Field(description="values of the map: one row per target token, one column per source token"),
    ]


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
    maps: Annotated[list[str], Field(description="what a map can show")]
    reads_features: Annotated[bool, Field(description="sentences are TEXT<TAB>FEATURES")]


class Error(BaseModel):
    """Reason why a request was refused."""

    detail: str


ERRORS: dict[int | str, dict[str, object]] = {
    "default": {"model": Error, "description": "The request is refused"},
    400: {"model": Error, "description": "The request, a sentence or an option is not valid"},
    401: {"model": Error, "description": "The token is missing or wrong"},
    404: {"model": Error, "description": "There is no such model"},
    408: {"model": Error, "description": "The body did not arrive in time"},
    413: {"model": Error, "description": "The request is too large"},
    429: {"model": Error, "description": "Too many sentences are waiting: try again later"},
}


def create_app(
    models: Sequence[ServedModel], limits: Limits | None = None, *, token: str | None = None
) -> FastAPI:
    """Create the ASGI application of the server.

    Args:
        models: the models, with unique names.
        limits: limits of the requests.
        token: if given, requests other than for the page need the header `Authorization: Bearer TOKEN`, and
            any host name is accepted; else only names of this machine are, so that a page of another site
            cannot reach the server by a name that resolves to it.
    """
    limits = limits or Limits()
    batchers: dict[str, Batcher[Options, Source, list[Prediction]]] = {
        served.name: Batcher(served.translate, limits.batch_size, limits.waiting) for served in models
    }

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(batcher.run()) for batcher in batchers.values()]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    app = FastAPI(
        title="attnlab",
        version=__version__,
        description="Translation by trained models, with their attention weights",
        docs_url=None,  # these pages load scripts from other servers
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(BodyLimit, limit=limits.body)
    if token is None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(LOCAL_NAMES))

    app.middleware("http")(partial(_secure, token))
    app.exception_handler(RequestValidationError)(_explain_invalid)
    app.get("/", response_class=HTMLResponse, include_in_schema=False)(_index)

    @app.get("/api/models")
    async def list_models() -> list[ModelDescription]:
        """List the models of this server."""
        return [_describe(served) for served in models]

    @app.post("/api/translate", responses=ERRORS)
    async def translate(request: TranslationRequest, connection: Request) -> TranslationResponse:
        """Translate sentences by one or several models."""
        selected = list(batchers) if request.models is None else request.models
        _check(request, selected, batchers, limits)
        prefixes = request.prefixes or [""] * len(request.sentences)
        sources = [Source(*pair) for pair in zip(request.sentences, prefixes, strict=True)]
        options = Options(request.beam_size, request.nbest, request.intervention, request.map)
        try:
            results = await _run_until_disconnect(
                connection, [batchers[name].submit(options, sources) for name in selected]
            )
        except QueueFullError:
            raise HTTPException(429, "Too many sentences are waiting: try again later") from None
        except UserError as error:
            raise HTTPException(400, str(error)) from error
        return TranslationResponse(
            results=[
                ModelResult(model=name, predictions=[[_to_json(best) for best in row] for row in rows])
                for name, rows in zip(selected, results, strict=True)
            ]
        )

    return app


async def _secure(
    token: str | None, request: Request, answer: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Answer a request with the server's token, or any request if it has none, and add headers."""
    if token is not None and request.url.path != "/":
        given = request.headers.get("Authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return JSONResponse({"detail": "Give the token of this server: Authorization: Bearer TOKEN"}, 401)
    response = await answer(request)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


async def _explain_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
    # The input is not repeated: JSON cannot encode NaN, nor UTF-8 a lone surrogate
    reasons = [(".".join(map(str, each["loc"][1:])), each["msg"]) for each in error.errors()]
    detail = "; ".join(": ".join(filter(None, reason)) for reason in reasons)
    return JSONResponse({"detail": escape_control_characters(detail)}, 400)


async def _index() -> HTMLResponse:
    content, policy = _page()
    return HTMLResponse(content, headers={"Content-Security-Policy": policy})


def _describe(served: ServedModel) -> ModelDescription:
    return ModelDescription(
        name=served.name,
        mechanism=served.mechanism,
        beam_size=served.model.config.search.beam_size,
        interventions=list(served.interventions),
        maps=list(served.maps),
        reads_features=served.model.config.data.get("features_column") is not None,
    )


async def _run_until_disconnect(
    connection: Request, work: Sequence[Coroutine[Any, Any, Result]]
) -> list[Result]:
    """Return the results of concurrent work; cancel it when the client closes the connection.

    Raises:
        HTTPException: if the connection was closed.
        Exception: the first one of the work, the rest of which is cancelled.
    """
    results = asyncio.create_task(_gather(work))
    closed = asyncio.create_task(_wait_for_disconnect(connection))
    try:
        await asyncio.wait((results, closed), return_when=asyncio.FIRST_COMPLETED)
        if not results.done():
            raise HTTPException(CLOSED, "The connection was closed")
        return results.result()
    finally:
        results.cancel()
        closed.cancel()


async def _gather(work: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return the results of concurrent work; an exception cancels the rest."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _wait_for_disconnect(connection: Request) -> None:
    """Wait until the client closes the connection. The body of the request must have been read."""
    while (await connection.receive())["type"] != "http.disconnect":
        pass


def _check(
    request: TranslationRequest, selected: Sequence[str], models: Collection[str], limits: Limits
) -> None:
    """Raise `HTTPException` if a request names an unknown model or exceeds a limit."""
    unknown = [name for name in selected if name not in models]
    if unknown or not selected:
        raise HTTPException(404, f"Unknown model {unknown or selected}: choose from {', '.join(models)}")
    if len(request.sentences) > limits.sentences:
        raise HTTPException(
            413, f"{len(request.sentences)} sentences: send at most {limits.sentences} at a time"
        )
    for text in (*request.sentences, *(request.prefixes or ())):
        if len(text) > limits.characters:
            raise HTTPException(
                413, f"A text of {len(text):,} characters: send at most {limits.characters:,}"
            )
    if request.prefixes is not None and len(request.prefixes) != len(request.sentences):
        raise HTTPException(400, f"{len(request.prefixes)} prefixes for {len(request.sentences)} sentences")
    if max(request.beam_size or 1, request.nbest) > limits.beam_size:
        raise HTTPException(400, f"beam_size and nbest are at most {limits.beam_size}")


def _to_json(prediction: Prediction) -> Translation:
    weights = prediction.weights
    return Translation(
        text=prediction.hypothesis,
        score=prediction.score or 0.0,
        tokens=prediction.tokens,
        probabilities=prediction.probabilities,
        source_tokens=prediction.source_tokens,
        attention=None if weights is None or not weights.any() else weights.astype(float).round(4).tolist(),
    )


@cache
def _page() -> tuple[str, str]:
    scripts = (page.HEAT_MAP, FOLDER / "page.js")
    html = page.render(
        FOLDER, "index.html.j2", title="attnlab: outputs and attention weights", scripts=scripts
    )
    policy = page.policy(scripts, images="data: blob:")
    return html, f"{policy}; connect-src 'self'; frame-ancestors 'none'"
