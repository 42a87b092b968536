"""All steps of the zoo, in the order of the table."""

from tests.zoo.streams import convolutional, decoders, encoders, recurrent, synthesis

GROUPS = {
    "recurrent layers, state spaces, linear attention": recurrent.FAMILIES,
    "convolution contexts, buffers, tails, running statistics": convolutional.FAMILIES,
    "encoders with attention over what they have heard": encoders.FAMILIES,
    "decoders and predictors with caches": decoders.FAMILIES,
    "denoisers, codecs and vocoders": synthesis.FAMILIES,
}

FAMILIES = tuple(family for group in GROUPS.values() for family in group)
