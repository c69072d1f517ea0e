"""Where prefixes live below the device: objects, stores, catalogue, workers."""
