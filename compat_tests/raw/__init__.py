"""A client of bare frames: it sends what a well-mannered library never would, in every version that exists."""
