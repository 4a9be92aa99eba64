"""Tidegate: a burst-aware batch scheduler whose past, present and future run through one kernel."""

__version__ = "0.1.0"


def compiled() -> bool:
    """Whether the kernel is machine code. It decides the same as the sources, about twice as fast."""
    from importlib.machinery import ExtensionFileLoader, PathFinder

    found = PathFinder.find_spec(f"{__name__}.core.decide", [f"{place}/core" for place in __path__])
    return found is not None and isinstance(found.loader, ExtensionFileLoader)
