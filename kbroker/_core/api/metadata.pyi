# Metadata from the published table. Nothing here is meant for Python; api.direct lets tests call it.
