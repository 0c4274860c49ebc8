#pragma once

#include <cstdint>

#include "lockstep/datasets/tokens/internal/language_grammar.h"

namespace lockstep {

/// Returns the entropy per token, in nats, of the first `num_tokens` tokens after a document's start: the sum
/// over all states of their probability at each position times the entropy of their choice.
double entropy_of_first(const LanguageGrammar& grammar, int64_t num_tokens);

/// Returns the entropy per token of an endless text, by the formula: what the choices of a sentence hold,
/// divided by its expected length.
double endless_entropy(const LanguageGrammar& grammar);

}  // namespace lockstep
