"""One system per file, with the learner that only it needs beside it."""
