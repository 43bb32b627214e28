"""One session of the batch scheduler: Volcano's algorithm on values, without input or output."""
