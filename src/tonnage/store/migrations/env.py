"""Run by Alembic: applies revisions on the connection, and in the transaction, that `tonnage.store.migrate` has opened."""

from alembic import context

from tonnage.store.migrate import VERSION_TABLE
from tonnage.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
