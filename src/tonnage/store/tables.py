"""The tables of the benchmark database; docs/reference/benchmark-database.md explains their columns and units.

Environments, measurements and operators carry a digest of everything they say, so that equal ones are stored once. A change
here needs a revision in `migrations/versions`; a test compares the two.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, ClassVar, TypeAlias

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAME_LENGTH = 200  # of indexed text: PostgreSQL refuses index entries above 2,700 bytes


class UtcTime(TypeDecorator[datetime]):
    """A moment. SQLite keeps no time zone, so everything is written and returned in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


# SQLite numbers rows by itself only where the key is called INTEGER.
Id: TypeAlias = Annotated[int, mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)]
Digest: TypeAlias = Annotated[str, mapped_column(String(64), unique=True)]
Name: TypeAlias = Annotated[str, mapped_column(String(NAME_LENGTH))]
# JSON and not JSONB, which would rewrite numbers: 1e300 would come back as an integer of 301 digits.
Json: TypeAlias = Annotated[object, mapped_column(JSON, nullable=False)]
Number: TypeAlias = Mapped[int | None]
Real: TypeAlias = Mapped[float | None]


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map: ClassVar = {int: BigInteger, float: Double, str: Text, datetime: UtcTime}


class Environments(Base):
    """Hardware, driver and libraries."""

    __tablename__ = "environments"

    id: Mapped[Id]
    digest: Mapped[Digest]
    device: Mapped[str]
    gpu: Mapped[Name] = mapped_column(index=True)
    gpu_memory_bytes: Number
    power_limit_watts: Real
    driver: Mapped[str]
    cuda: Mapped[str]
    cudnn: Mapped[str]
    torch: Mapped[str]
    python: Mapped[str]
    platform: Mapped[str]
    cpu: Mapped[str]
    cpu_cores: Number
    tonnage: Mapped[str]


class Measurements(Base):
    """One workload under known conditions."""

    __tablename__ = "measurements"

    id: Mapped[Id]
    digest: Mapped[Digest]
    environment_id: Mapped[int] = mapped_column(ForeignKey("environments.id", ondelete="CASCADE"), index=True)
    key: Mapped[Name] = mapped_column(index=True)
    campaign: Mapped[Name]
    family: Mapped[Name] = mapped_column(index=True)
    structure: Mapped[Json]
    batch: Mapped[int]
    input_shape: Mapped[Json]
    precision: Mapped[str]
    settings: Mapped[Json]
    mode: Mapped[str]
    status: Mapped[str]
    message: Mapped[str]
    measured_at: Mapped[datetime]
    steps: Mapped[int]
    repetitions: Mapped[int]
    step_seconds_mean: Real
    step_seconds_deviation: Real
    forward_seconds_mean: Real
    forward_seconds_deviation: Real
    backward_seconds_mean: Real
    backward_seconds_deviation: Real
    optimizer_seconds_mean: Real
    optimizer_seconds_deviation: Real
    h2d_seconds_mean: Real
    h2d_seconds_deviation: Real
    d2h_seconds_mean: Real
    d2h_seconds_deviation: Real
    host_seconds_mean: Real
    host_seconds_deviation: Real
    first_step_seconds: Real
    h2d_bytes: Number
    d2h_bytes: Number
    allocated_bytes: Number
    reserved_bytes: Number
    device_bytes: Number
    power_watts: Real
    energy_joules_step: Real
    utilisation: Real
    sm_clock_mhz: Real
    temperature_celsius: Real
    parameter_count: Number
    storage_bytes: Number


class Operators(Base):
    """An operator with its shapes, however many kernels and hosts name it."""

    __tablename__ = "operators"

    id: Mapped[Id]
    digest: Mapped[Digest]
    name: Mapped[Name] = mapped_column(index=True)
    spec: Mapped[Json]


class Kernels(Base):
    """One kernel that an operator launches."""

    __tablename__ = "kernels"

    id: Mapped[Id]
    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurements.id", ondelete="CASCADE"), index=True)
    operator_id: Mapped[int] = mapped_column(ForeignKey("operators.id", ondelete="CASCADE"), index=True)
    phase: Mapped[str]
    position: Mapped[int]
    kernel: Mapped[str]
    calls: Mapped[int]
    seconds_mean: Mapped[float]
    seconds_deviation: Mapped[float]
    grid: Mapped[Json]
    block: Mapped[Json]


class Hosts(Base):
    """What launching an operator costs the host."""

    __tablename__ = "hosts"

    id: Mapped[Id]
    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurements.id", ondelete="CASCADE"), index=True)
    operator_id: Mapped[int] = mapped_column(ForeignKey("operators.id", ondelete="CASCADE"), index=True)
    phase: Mapped[str]
    calls: Mapped[int]
    seconds_mean: Mapped[float]
    seconds_deviation: Mapped[float]


class Labels(Base):
    """What the configuration server has answered: a signed label, and the choice that it came from."""

    __tablename__ = "labels"

    id: Mapped[Id]
    label: Mapped[str] = mapped_column(String(32), unique=True)
    server: Mapped[Name]
    program: Mapped[str]
    program_digest: Mapped[Name] = mapped_column(index=True)
    gpu: Mapped[Name]
    issued_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    step_seconds: Mapped[float]
    signed: Mapped[Json]
    choice: Mapped[Json]


class LabelMeasurements(Base):
    """What a program that was deployed with a label really did."""

    __tablename__ = "label_measurements"

    id: Mapped[Id]
    label_id: Mapped[int] = mapped_column(ForeignKey("labels.id", ondelete="CASCADE"), index=True)
    measured_at: Mapped[datetime]
    step_seconds: Mapped[float]
    indicators: Mapped[Json]
    run: Mapped[object | None] = mapped_column(JSON(none_as_null=True))


# In this order a row comes after those it names.
# Labels are the server's own business and are not exchanged.
TABLES: tuple[type[Base], ...] = (Environments, Operators, Measurements, Kernels, Hosts)
