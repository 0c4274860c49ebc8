#include "lockstep/datasets/tokens/internal/token_stream.h"

#include <algorithm>
#include <utility>

namespace lockstep {

TokenStream::TokenStream(std::vector<std::unique_ptr<const TokenPart>> parts, uint32_t vocab_size)
    : parts_(std::move(parts)), vocab_size_(vocab_size) {
  firsts_.reserve(parts_.size() + 1);
  for (const auto& part : parts_) firsts_.push_back(firsts_.back() + part->size());
}

void TokenStream::check_sizes() const {
  for (const auto& part : parts_) part->check_size();
}

void TokenStream::copy(uint64_t first, std::span<int64_t> into) const {
  auto number =
      static_cast<size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), first) - firsts_.begin()) - 1;
  for (; !into.empty(); ++number) {
    const TokenPart& part = *parts_[number];
    const uint64_t position = first - firsts_[number];
    const size_t count = std::min<uint64_t>(into.size(), part.size() - position);
    if (part.copy(position, into.first(count)) >= vocab_size_)
      part.check_tokens(position, count, vocab_size_);
    first += count;
    into = into.subspan(count);
  }
}

}  // namespace lockstep
