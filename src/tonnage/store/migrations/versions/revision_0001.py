"""The first tables: environments, measurements, operators, kernels and hosts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_SPREADS = ("step", "forward", "backward", "optimizer", "h2d", "d2h", "host")


def upgrade() -> None:
    _create_environments()
    _create_operators()
    _create_measurements()
    _create_of_an_operator(
        "kernels",
        _text("phase"), _whole("position"), _text("kernel"), _whole("calls"),
        *_spread("seconds", nullable=False), _json("grid"), _json("block"),
    )  # fmt: skip
    _create_of_an_operator("hosts", _text("phase"), _whole("calls"), *_spread("seconds", nullable=False))


def downgrade() -> None:
    for table in ("hosts", "kernels", "measurements", "operators", "environments"):
        op.drop_table(table)


def _create_environments() -> None:
    op.create_table(
        "environments", *_key("environments"), *_digest("environments"),
        _text("device"), _name("gpu"), _whole("gpu_memory_bytes", nullable=True), _real("power_limit_watts"),
        _text("driver"), _text("cuda"), _text("cudnn"), _text("torch"), _text("python"), _text("platform"),
        _text("cpu"), _whole("cpu_cores", nullable=True), _text("tonnage"),
    )  # fmt: skip
    _index("environments", "gpu")


def _create_operators() -> None:
    op.create_table("operators", *_key("operators"), *_digest("operators"), _name("name"), _json("spec"))
    _index("operators", "name")


def _create_measurements() -> None:
    op.create_table(
        "measurements", *_key("measurements"), *_digest("measurements"),
        *_reference("measurements", "environment"),
        _name("key"), _name("campaign"), _name("family"), _json("structure"), _whole("batch"), _json("input_shape"),
        _text("precision"), _json("settings"), _text("mode"), _text("status"), _text("message"),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False), _whole("steps"), _whole("repetitions"),
        *(column for name in _SPREADS for column in _spread(f"{name}_seconds")),
        _real("first_step_seconds"),
        *(_whole(f"{name}_bytes", nullable=True) for name in ("h2d", "d2h", "allocated", "reserved", "device")),
        _real("power_watts"), _real("energy_joules_step"), _real("utilisation"), _real("sm_clock_mhz"),
        _real("temperature_celsius"), _whole("parameter_count", nullable=True), _whole("storage_bytes", nullable=True),
    )  # fmt: skip
    for column in ("environment_id", "key", "family"):
        _index("measurements", column)


def _create_of_an_operator(table: str, *columns: sa.Column[object]) -> None:
    op.create_table(table, *_key(table), *_reference(table, "measurement"), *_reference(table, "operator"), *columns)
    _index(table, "measurement_id")
    _index(table, "operator_id")


def _key(table: str) -> tuple[SchemaItem, ...]:
    return sa.Column("id", _ID, nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{table}")


def _digest(table: str) -> tuple[SchemaItem, ...]:
    column = sa.Column("digest", sa.String(64), nullable=False)
    return column, sa.UniqueConstraint("digest", name=f"uq_{table}_digest")


def _reference(table: str, other: str) -> tuple[SchemaItem, ...]:
    name = f"{other}_id"
    key = sa.ForeignKeyConstraint([name], [f"{other}s.id"], name=f"fk_{table}_{name}", ondelete="CASCADE")
    return sa.Column(name, _ID, nullable=False), key


def _index(table: str, column: str) -> None:
    op.create_index(f"ix_{table}_{column}", table, [column])


def _spread(name: str, nullable: bool = True) -> tuple[sa.Column[object], ...]:
    return tuple(sa.Column(f"{name}_{part}", sa.Double(), nullable=nullable) for part in ("mean", "deviation"))


def _real(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.Double(), nullable=True)


def _whole(name: str, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def _text(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.Text(), nullable=False)


def _name(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.String(200), nullable=False)


def _json(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.JSON(), nullable=False)
