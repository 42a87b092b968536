"""All steps of the zoo, in the order of the table."""

from tests.zoo.streams import (
    codecs,
    convolutional,
    decoders,
    encoders,
    library_decoders,
    library_others,
    other_encoders,
    papers_acoustic,
    papers_sequence,
    recurrent,
    synthesis,
    toolkits,
)

GROUPS = {
    "recurrent layers, state spaces, linear attention": recurrent.FAMILIES,
    "convolution contexts, buffers, tails, running statistics": convolutional.FAMILIES,
    "encoders with attention over what they have heard": encoders.FAMILIES,
    "encoders with states stacked over layers, with look-ahead, with rings and flags": other_encoders.FAMILIES,
    "as toolkits export them: subsampling in front, offsets, lengths, caches of all layers": toolkits.FAMILIES,
    "decoders and predictors with caches": decoders.FAMILIES,
    "denoisers, codecs and vocoders": synthesis.FAMILIES,
    "codecs with quantisers and transformers": codecs.FAMILIES,
    "from papers: front ends, spotters, speakers, denoisers, vocoders": papers_acoustic.FAMILIES,
    "from papers: encoders, state spaces, predictors, decoders": papers_sequence.FAMILIES,
    "language models of the transformers package": library_decoders.FAMILIES,
    "other steps of the transformers package": library_others.FAMILIES,
}

FAMILIES = tuple(family for group in GROUPS.values() for family in group)

LIBRARY = tuple(family.name for family in (*library_decoders.FAMILIES, *library_others.FAMILIES))
"""Steps that need the packages of the extra `zoo`."""
