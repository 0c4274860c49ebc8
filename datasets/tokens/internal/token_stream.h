#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/datasets/tokens/internal/token_part.h"

namespace lockstep {

/// The tokens of several files, one after another. Thread-safe.
class TokenStream {
 public:
  TokenStream(std::vector<std::unique_ptr<const TokenPart>> parts, uint32_t vocab_size);

  uint64_t size() const { return firsts_.back(); }
  const std::vector<std::unique_ptr<const TokenPart>>& parts() const { return parts_; }

  /// Throws DataError naming the file if one has changed its size.
  void check_sizes() const;
  /// Copies the tokens from `first` on, which are there. Throws DataError as TokenPart::check_tokens().
  void copy(uint64_t first, std::span<int64_t> into) const;

 private:
  std::vector<std::unique_ptr<const TokenPart>> parts_;
  std::vector<uint64_t> firsts_{0};  // the position of each part's first token, and the number of all
  uint32_t vocab_size_;
};

}  // namespace lockstep
