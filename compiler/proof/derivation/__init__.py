"""Derives a graph that runs chunk by chunk, with caches, from a stateless graph over whole sequences.

    logits [batch, time] = decoder(tokens [batch, time])                      attention over the whole sequence
    logits [batch, n], next_cache = step(tokens [batch, n], cache [batch, heads, past, width])

Prefill and decode step are one derived graph: a prompt is a call of many frames on empty caches, a step is one of one
frame. The caches that it joins are those of a model exported with caches, so that the passes behind (`select_states`,
`pad_axes`, `window_states`) make them static.

The proof shows (reference: conditions 1 to 4 for prefill and step):

1. Bounded look-ahead. Every value is followed by the frames that each of its entries may read, an interval around
   its own place (`dependence`); no result reads a frame behind its own, and every node that makes one do so is named.
2. Prefix stability. A value that is cached reads no later frame, and no number computed of it is the sequence's length.
3. Position covariance. A value computed from positions alone (ranges, tables, masks) is a function of the position,
   never of the length: it is computed anew for the positions past, past + 1, ... of a call.
4. Frames are mixed only by masked reductions over stable operands. Masks are evaluated for the longest sequence that
   the caches hold, not recognised: which entries have weight 0 is read off, and by 3. shorter sequences have a part of
   it.

Then a call over frames past..past+n-1 computes the rows that the whole graph has there, by induction over calls. It
holds for sequences up to the capacity; a longer one is refused at run time. Where masks are known of any length
(`any_length`) and only the newest frames are kept, it holds for all: one number counts them, by row (`row_positions`).

A prefix may be joined to the frames (`prefixes`): it reads no frame, so that every call computes it alone.

`links` maps the axes of an operator's operands to those of its result; `judging` follows reads of frames through them;
`reading` derives the frames that convolutions and recurrent layers read; `masks` evaluates masks, `placed` evaluates
other values of positions that no rule derives, and `placing` writes those for a call; `asking` finds which parts of
which values a call needs: the new rows, and all frames that they are mixed with; `emission` writes them.
"""
