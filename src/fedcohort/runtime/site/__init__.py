"""A site's end of a call: bytes of a request to bytes of its answer."""
