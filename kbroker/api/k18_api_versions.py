"""ApiVersions (18), versions 0-4: answered in the data plane from bodies that are built here and published.

v3: flexible body under a header that is not (KIP-511); only supported features whose lowest level is above 0.
v4: all supported features (KIP-584). Any other version is answered with a v0 body: UNSUPPORTED_VERSION and this key's
range, so that a newer client learns what to ask.
"""

from __future__ import annotations

from kbroker._core.errors import Err
from kbroker.api.registry import REGISTRY, answered_in_core
from kbroker.cluster.features import SUPPORTED
from kbroker.cluster.image import ClusterImage
from kbroker.protocol import codec
from kbroker.protocol.messages import ApiVersionsResponse

LOWEST, HIGHEST = 0, 4

answered_in_core(18, versions=f"{LOWEST}-{HIGHEST}")


def response(image: ClusterImage, features_epoch: int, version: int) -> ApiVersionsResponse:
    """`features_epoch`: the offset in the metadata log up to which the image is known."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=row.key, min_version=row.advertised_min, max_version=row.max_version)
            for row in REGISTRY
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or version >= 4
        ],
        finalized_features_epoch=features_epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
            if name in SUPPORTED  # a directory may bring along levels whose behaviour does not exist here yet
        ],
    )


def bodies(image: ClusterImage, features_epoch: int) -> list[bytes]:
    """What the data plane sends: the body of each version, and last the answer to any other version."""
    fallback = ApiVersionsResponse(
        error_code=Err.UNSUPPORTED_VERSION,
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=LOWEST, max_version=HIGHEST)],
    )
    known = range(LOWEST, HIGHEST + 1)
    return [
        *(codec.encode(response(image, features_epoch, version), version) for version in known),
        codec.encode(fallback, 0),
    ]
