"""What Alembic runs to migrate: always on the connection that the database module holds, never on a URL of its own."""

from alembic import context

from control.metrics.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
