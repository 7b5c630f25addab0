"""The configuration server over HTTP. A handler parses, calls and formats; what it calls is `Configurator`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from tonnage import __version__, errors
from tonnage.configure.label_annotations import to_annotations
from tonnage.configure.signing import fingerprint
from tonnage.errors import TonnageError
from tonnage.service import bodies
from tonnage.service.configurator import Configurator, label_text
from tonnage.service.request import ERROR_HEADER
from tonnage.service.size_limit import SizeLimit

LabelPath = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="The label's id.")]
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": bodies.ErrorView} for status in (400, 403, 404, 413, 422, 503)
}


def create_app(configurator: Configurator, rules_text: str) -> FastAPI:
    """One application for one configurator."""
    app = FastAPI(
        title="Tonnage configuration server",
        version=__version__,
        responses=_ERRORS,
        docs_url=None,  # these pages load scripts from elsewhere; /openapi.json stays
        redoc_url=None,
    )
    app.add_middleware(SizeLimit)
    _handle_errors(app)
    _add_server_routes(app, configurator, rules_text)
    _add_label_routes(app, configurator)
    return app


def _add_server_routes(app: FastAPI, configurator: Configurator, rules_text: str) -> None:
    @app.get("/healthz")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/servers/self")
    def server() -> bodies.ServerView:
        """Name and public key: what `tonnage servers add` shows and keeps."""
        return bodies.ServerView(
            name=configurator.name,
            public_key=configurator.public_key.hex(),
            fingerprint=fingerprint(configurator.public_key),
            rules_version=configurator.rules.version,
            images_version=configurator.images.version,
            tonnage_version=__version__,
        )

    @app.get("/v1/inventory")
    def inventory() -> bodies.InventoryView:
        """What there is to choose from."""
        offered = configurator.candidates()
        return bodies.InventoryView(
            name=configurator.cluster.name,
            gpus=sorted({candidate.gpu.name for candidate in offered if candidate.gpu}),
            candidates=[
                {
                    "name": candidate.name,
                    "node_type": candidate.node_type,
                    "gpu": candidate.gpu.name if candidate.gpu else "",
                    "gpu_count": candidate.gpu_count,
                    "communication": candidate.communication,
                    "cpu_cores": candidate.node.cpu_cores,
                    "sockets": candidate.node.cpu_sockets,
                    "memory_bytes": candidate.node.memory_bytes,
                }
                for candidate in offered
            ],
        )

    @app.get("/v1/rules")
    def rules() -> bodies.RulesView:
        """The rules as values, and as they were written."""
        plain = [asdict(rule) for rule in configurator.rules.rules]
        return bodies.RulesView(version=configurator.rules.version, rules=plain, text=rules_text)


def _add_label_routes(app: FastAPI, configurator: Configurator) -> None:
    @app.post("/v1/configurations", status_code=201)
    def create_configuration(request: bodies.ConfigurationRequest) -> bodies.ConfigurationAnswer:
        """Indicators in, a signed label out, with the reasons and everything that was considered."""
        answer = configurator.configure(request.value())
        return bodies.ConfigurationAnswer(
            label=asdict(answer.signed),
            text=label_text(answer.signed),
            annotations=to_annotations(answer.signed),
            choice=bodies.ChoiceView.of(answer.choice.as_dict()),
            warnings=list(answer.warnings),
        )

    @app.post("/v1/labels/{label}/measurements", status_code=201)
    def create_measurement(label: LabelPath, request: bodies.MeasurementBody) -> bodies.LabelView:
        """The indicators of the run that was deployed with the label."""
        run = request.run.value() if request.run else None
        configurator.measured(label, request.indicators.value(), request.machine.value(), run)
        return _label_view(configurator, label)

    @app.get("/v1/labels/{label}")
    def find_label(label: LabelPath) -> bodies.LabelView:
        """Predicted beside measured."""
        return _label_view(configurator, label)


def _label_view(configurator: Configurator, label: str) -> bodies.LabelView:
    row, measured = configurator.book.find(label), configurator.book.measurements(label)
    return bodies.LabelView(
        label=dict(row.signed),
        program=row.program,
        predicted_step_seconds=row.step_seconds,
        choice=bodies.ChoiceView.of(row.choice),
        measurements=[
            bodies.MeasuredView(
                measured_at=one.measured_at,
                step_seconds=one.step_seconds,
                error=row.step_seconds / one.step_seconds - 1,
                indicators=dict(one.indicators),
                run=None if one.run is None else dict(one.run),
            )
            for one in measured
        ],
    )


def _handle_errors(app: FastAPI) -> None:
    """One shape for all: a message and a hint, never a traceback, never what the client sent."""

    @app.exception_handler(TonnageError)
    def explain(request: Request, error: TonnageError) -> JSONResponse:  # noqa: ARG001  (FastAPI gives both)
        response = _error(error.http_status, error.message, error.hint)
        response.headers[ERROR_HEADER] = _name_of(error)
        return response

    @app.exception_handler(RequestValidationError)
    def refuse(request: Request, error: RequestValidationError) -> JSONResponse:  # noqa: ARG001
        problems = [f"{'.'.join(str(part) for part in p['loc'][1:]) or 'body'}: {p['msg']}" for p in error.errors()]
        text = "; ".join(problem.encode("utf-8", "replace").decode()[:200] for problem in problems[:5])
        return _error(422, text, "the fields are described at /openapi.json")

    @app.exception_handler(HTTPException)
    def fail(request: Request, error: HTTPException) -> JSONResponse:
        response = _error(
            error.status_code, f"{error.detail}: {request.method} {request.url.path[:200]}", "see /openapi.json"
        )
        response.headers.update(error.headers or {})
        return response


def _name_of(error: TonnageError) -> str:
    """Of the class in `tonnage.errors`, by which a client raises the same one."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__)


def _error(status: int, message: str, hint: str) -> JSONResponse:
    return JSONResponse({"message": message, "hint": hint}, status_code=status)
