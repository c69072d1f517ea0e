"""Words, states, events and the allocator: pure, without files, sockets, SQL or torch."""
