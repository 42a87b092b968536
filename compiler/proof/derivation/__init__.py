"""Derives, from a stateless graph over whole sequences, a graph that is called chunk by chunk, caches included.

    logits [batch, time] = decoder(tokens [batch, time])                      attention over the whole sequence
    logits [batch, n], next_cache = step(tokens [batch, n], cache [batch, heads, past, width])

Prefill and decode step are one derived graph: a prompt is a call of many frames on empty caches, a step is one of one
frame. The caches that it joins are those of a model exported with caches, so that the passes behind (`select_states`,
`pad_axes`, `window_states`) make them static.

What is proved (reference: conditions 1 to 4 for prefill and step):

1. Bounded look-ahead. Every value is followed by the frames that each of its entries may read, an interval around
   its own place (`dependence`); no result reads a frame behind its own, and every node that makes one do so is named.
2. Prefix stability. A value that is cached reads no later frame, and no number computed of it is the sequence's length.
3. Position covariance. What is computed of places alone (ranges, tables, masks) is a function of the place, never of
   the length: it is made anew for the places past, past + 1, ... of a call.
4. What mixes frames is a masked reduction over stable operands. Masks are evaluated for the longest sequence that the
   caches hold, not recognised: which entries have weight 0 is read off, and by 3. shorter sequences have a part of it.

Then a call over frames past..past+n-1 computes the rows that the whole graph has there, by induction over calls. It
holds for sequences up to the capacity; a longer one is refused at run time. Where masks are known of any length
(`any_length`) and only the newest frames are kept, it holds for all: one number counts them, by row (`row_positions`).

A prefix may be joined to the frames (`prefixes`): it reads no frame, so that every call computes it alone.

`links` says of an operator how the axes of its result come from those of its operands; `judging` follows what is read
through them; `reading` tells what convolutions and recurrent layers read; `masks` evaluates masks, `placed` what else
is computed of places in ways that no rule follows, and `placing` writes that for a call; `asking` finds which parts of
which values a call needs, of rows the new ones, of what they are mixed with all; `emission` writes them.
"""
