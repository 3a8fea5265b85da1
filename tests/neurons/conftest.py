"""Nengo as a peer: it computes its decoders each time, for its cache on disk is one for all processes, with a lock."""

import nengo

nengo.rc.set("decoder_cache", "enabled", "False")
