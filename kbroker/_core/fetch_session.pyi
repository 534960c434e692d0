# Incremental fetch state. Nothing here is meant for Python; api.direct lets tests drive it.
