"""The configuration server without HTTP: indicators in, a signed label out, measurements kept beside it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from tonnage.configure import label_json
from tonnage.configure.answer import Choice
from tonnage.configure.choose import choose
from tonnage.configure.images import Images, choose_image
from tonnage.configure.inventory import Candidate, candidates
from tonnage.configure.label import ImageReference, Label, PredictedTime, SignedLabel
from tonnage.configure.rules import Rules
from tonnage.configure.signing import public_key, sign
from tonnage.configure.work import MOST_GPUS, Work
from tonnage.errors import UsageError
from tonnage.hardware import Cluster
from tonnage.profile.indicators import Indicators
from tonnage.profile.measurement import measurement_of_run
from tonnage.service.request import Run
from tonnage.store.database import Database
from tonnage.store.labels import LabelBook, LabelMeasurement, LabelRow
from tonnage.store.rows import Environment

DEFAULT_VALIDITY_SECONDS = 24 * 3600

CAMPAIGN = "labels"  # of what was measured, in the benchmark database


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    signed: SignedLabel
    choice: Choice
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Configurator:
    """One server: its name and key, what it has to offer and the rules it goes by."""

    name: str
    private_key: bytes = field(repr=False)
    cluster: Cluster
    rules: Rules
    images: Images
    database: Database
    validity_seconds: int = DEFAULT_VALIDITY_SECONDS
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: secrets.token_hex(16)

    @cached_property
    def book(self) -> LabelBook:
        return LabelBook(self.database)

    @property
    def public_key(self) -> bytes:
        return public_key(self.private_key)

    def candidates(self) -> tuple[Candidate, ...]:
        return candidates(self.cluster, MOST_GPUS)

    def configure(self, work: Work) -> Answer:
        """Raises `DoesNotFit` where nothing of the inventory can run the program."""
        work = replace(work, seen=self._seen(work))
        choice = choose(work, self.cluster, self.rules)
        image = choose_image(work, choice.candidate, self.images)
        signed = sign(self._label(work, choice, image.image), self.private_key)
        self.book.add(_row(work, choice, signed))
        return Answer(signed=signed, choice=choice, warnings=image.warnings)

    def _label(self, work: Work, choice: Choice, image: ImageReference) -> Label:
        now, run = int(self.clock()), choice.prediction.run_seconds
        return Label(
            id=self.new_id(),
            server=self.name,
            hardware=choice.configuration,
            image=image,
            program_digest=work.indicators.program_digest,
            rules_version=self.rules.version,
            predicted=PredictedTime(
                seconds=float(run.value), low_seconds=float(run.low), high_seconds=float(run.high), steps=work.run_steps
            ),
            issued_at=now,
            expires_at=now + self.validity_seconds,
        )

    def _seen(self, work: Work) -> dict[str, Indicators]:
        """What earlier runs of this very program did, by GPU: better than any prediction. Of several GPUs together the
        steps hold their communication as well, which is predicted apart."""
        found = self.book.indicators_of(work.indicators.program_digest)
        runs = {gpu: Indicators.from_dict(plain) for gpu, plain in found.items() if gpu}
        return {gpu: run for gpu, run in runs.items() if run.gpu_count == 1}

    def measured(self, label: str, indicators: Indicators, machine: Environment, run: Run | None) -> None:
        """Keep what a run with the label did; raises `UsageError` for indicators of another program."""
        row = self.book.find(label)
        if indicators.program_digest != row.program_digest:
            raise UsageError(f"the label {label} is for another program than these indicators are of")
        if indicators.basis != "measured":
            raise UsageError("these indicators were predicted, not measured")
        if indicators.gpu != row.gpu:
            has, wants = (name or "a processor alone" for name in (indicators.gpu, row.gpu))
            raise UsageError(f"the label {label} is for {wants}, these indicators are of {has}")
        now = datetime.fromtimestamp(self.clock(), UTC)
        measured = LabelMeasurement(
            measured_at=now,
            step_seconds=indicators.step_seconds,
            indicators=indicators.as_dict(),
            run=None if run is None else asdict(run),
        )
        self.book.add_measurement(label, measured)
        state = run.state if run else "succeeded"
        measurement = measurement_of_run(indicators, now, campaign=CAMPAIGN, structure={"label": label}, state=state)
        self.database.add(replace(machine, device=indicators.device, gpu=indicators.gpu), measurement)


def _row(work: Work, choice: Choice, signed: SignedLabel) -> LabelRow:
    label = signed.label
    return LabelRow(
        label=label.id,
        server=label.server,
        program=work.indicators.program,
        program_digest=label.program_digest,
        gpu=label.hardware.gpu,
        issued_at=datetime.fromtimestamp(label.issued_at, UTC),
        expires_at=datetime.fromtimestamp(label.expires_at, UTC),
        step_seconds=choice.prediction.step_seconds,
        signed=asdict(signed),
        choice=choice.as_dict(),
    )


def label_text(signed: SignedLabel) -> str:
    """The content of label.json."""
    return label_json.dump(signed).decode()
