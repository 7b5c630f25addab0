"""The run as a whole beside the indicators of its window."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("label_measurements", sa.Column("run", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("label_measurements", "run")
