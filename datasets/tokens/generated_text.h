#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/datasets/tokens/generated_language.h"

namespace lockstep {

struct GeneratedTextOptions {
  int64_t count = 1'000'000;  ///< number of sequences
  /// Tokens that a model gets, and as many that it predicts.
  int64_t sequence_length = 256;
  /// Another seed gives other texts of the same language: train on one, test on another.
  uint64_t seed = 0;
  GeneratedLanguageOptions language{};
};

/// Texts of a GeneratedLanguage, for programs that must train a language model without any file. A sequence
/// is drawn when it is needed, from the seed and its index alone, so every thread and every run gets the
/// same. It begins where a text begins, so a model sees all that its tokens depend on, and no model has an
/// expected loss below entropy(). The interface is that of CollatedDataset.
///
/// Example:
///
///     GeneratedText text({.count = 10'000, .sequence_length = 128, .seed = 1});
///     auto batches = strategy.distribute_dataset(text, {.global_batch_size = 32, .shuffle_seed = 1});
///     std::cout << "lowest possible loss: " << text.entropy() << '\n';
class GeneratedText {
 public:
  /// Throws std::invalid_argument if an option is out of range.
  explicit GeneratedText(const GeneratedTextOptions& options = {});

  std::optional<size_t> size() const { return static_cast<size_t>(options_.count); }
  /// Returns `data` and `target`, int64 [n, sequence_length]. The target of a token is the one after it.
  /// Throws std::invalid_argument if an index is not below size().
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  /// Returns the batch unchanged.
  torch::data::Example<> device_transform(torch::data::Example<> batch) const { return batch; }
  std::string identity() const;

  const GeneratedLanguage& language() const { return language_; }
  /// Returns the lowest possible expected loss per target, in nats: GeneratedLanguage::entropy() of
  /// sequence_length.
  double entropy() const { return language_.entropy(options_.sequence_length); }

 private:
  GeneratedTextOptions options_;
  GeneratedLanguage language_;
};

}  // namespace lockstep
