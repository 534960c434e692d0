# Parked requests of one network thread. Nothing here is meant for Python; api.direct lets tests drive it.
