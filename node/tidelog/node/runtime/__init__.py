"""The shells of a broker: event loop, real files, clocks."""
