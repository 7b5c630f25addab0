"""Labels that the configuration server has issued, and what came of them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "labels",
        sa.Column("id", _ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_labels"),
        sa.Column("label", sa.String(32), nullable=False),
        sa.UniqueConstraint("label", name="uq_labels_label"),
        sa.Column("server", sa.String(200), nullable=False),
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("program_digest", sa.String(200), nullable=False),
        sa.Column("gpu", sa.String(200), nullable=False),
        *(sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in ("issued_at", "expires_at")),
        sa.Column("step_seconds", sa.Double(), nullable=False),
        *(sa.Column(name, sa.JSON(), nullable=False) for name in ("signed", "choice")),
    )
    op.create_index("ix_labels_program_digest", "labels", ["program_digest"])
    op.create_table(
        "label_measurements",
        sa.Column("id", _ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_label_measurements"),
        sa.Column("label_id", _ID, nullable=False),
        sa.ForeignKeyConstraint(["label_id"], ["labels.id"], name="fk_label_measurements_label_id", ondelete="CASCADE"),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("step_seconds", sa.Double(), nullable=False),
        sa.Column("indicators", sa.JSON(), nullable=False),
    )
    op.create_index("ix_label_measurements_label_id", "label_measurements", ["label_id"])


def downgrade() -> None:
    op.drop_table("label_measurements")
    op.drop_table("labels")
