# Fetch, whole. Nothing here is meant for Python; api.direct lets tests call it.
