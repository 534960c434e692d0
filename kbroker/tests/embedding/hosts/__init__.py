"""Programs that other software loads in the tests: a gunicorn application, a Celery application."""
