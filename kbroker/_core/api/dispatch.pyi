# The first look at a frame. Nothing here is meant for Python; api.direct lets tests call it.
