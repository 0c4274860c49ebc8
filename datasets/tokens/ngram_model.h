#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

struct NgramModelOptions {
  /// Tokens that the model looks at: the predicted one and the `order` - 1 before it. 1 to 16.
  int order = 2;
  /// Tokens are below it.
  uint32_t vocab_size = 0;
};

/// A language model that counts: the baseline that a neural one has to beat. The probability of a token is
/// interpolated between contexts of all lengths as Witten and Bell (The Zero-Frequency Problem, 1991) do:
///
///     p(token | context) = (c + d * p(token | context without its first token)) / (n + d)
///
/// where the context was followed n times by a token, d different ones, and c times by this one. Without
/// context, the tokens are equally probable to begin with. Takes 44 to 88 bytes of memory for each different
/// n-gram of each order. Not thread-safe while it counts.
///
/// Example:
///
///     NgramModel bigrams({.order = 2, .vocab_size = language.vocab_size()});
///     for (const auto& text : texts) bigrams.count(text);
///     std::cout << "loss per token: " << bigrams.loss(held_out) / (held_out.size() - 1) << '\n';
class NgramModel {
 public:
  /// Throws std::invalid_argument if an option is out of range.
  explicit NgramModel(const NgramModelOptions& options);
  ~NgramModel();
  NgramModel(NgramModel&&) noexcept;
  NgramModel& operator=(NgramModel&&) noexcept;

  /// Counts the tokens of a sequence, each with those before it in this sequence. The first one is counted
  /// only as a context. Throws std::invalid_argument if a token is not below the size of the vocabulary, and
  /// std::length_error if there are more than 2^32 - 1 tokens in all.
  void count(std::span<const uint32_t> tokens);

  /// Returns the probability of `token` after `context`, of which the last `order` - 1 tokens matter.
  double probability(std::span<const uint32_t> context, uint32_t token) const;
  /// Returns the negative log probability, in nats, of all tokens but the first: a sum. Throws as count().
  double loss(std::span<const uint32_t> tokens) const;

  /// Returns the number of different n-grams of all orders.
  size_t num_ngrams() const;

 private:
  static constexpr int kMaxOrder = 16;
  class Counts;
  /// The n-grams that end with the last token that was read, by their lengths 0, 1, ...
  using LastNgrams = std::array<uint32_t, kMaxOrder + 1>;

  static LastNgrams none_read();
  /// Returns the probability of the next token, and reads it.
  double read(LastNgrams& last, uint32_t token) const;

  NgramModelOptions options_;
  std::unique_ptr<Counts> counts_;
};

}  // namespace lockstep
