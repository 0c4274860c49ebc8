#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

/// Options of cutting a Gpt along an axis of the mesh.
struct GptCutOptions {
  /// Between layers that are cut, each rank has a shard of the sequence instead of all of it: activations
  /// then take a rank's share of the memory. The ranks must divide the length of sequences. Calls with a
  /// cache do not do so.
  bool shard_sequence = false;
};

/// A size of a Gpt that the ranks along an axis of the mesh cannot divide.
struct UncutGptSize {
  std::string option;             ///< its name in GptOptions
  int64_t given = 0;              ///< the value, with one in place of a 0 that stands for it
  std::vector<int64_t> would_do;  ///< the nearest sizes that the ranks divide, in ascending order
};

/// Returns the first size that keeps a Gpt from being cut among `ranks`, or none. Heads, heads of keys and
/// values, hidden width and vocabulary must be multiples of it. The vocabularies that would do are not
/// smaller, as those of tokenizers are given. Throws std::invalid_argument as complete_gpt_options().
///
/// Example:
///
///     const auto uncut = uncut_gpt_size(gpt_preset("gpt2"), 2);  // vocabulary_size 50257: 50258 would do
std::optional<UncutGptSize> uncut_gpt_size(const GptOptions& options, int64_t ranks);

/// Returns the sizes that would do as text, such as "8 or 12 would do".
std::string would_do_text(const UncutGptSize& size);

}  // namespace lockstep
