#include "lockstep/datasets/tokens/internal/token_part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

/// Reads a number that may lie anywhere.
template <typename Number>
Number token_at(const char* tokens, uint64_t position) {
  Number number = 0;
  std::memcpy(&number, tokens + position * sizeof(Number), sizeof(Number));
  return number;
}

template <typename Number>
uint32_t widen(const char* tokens, std::span<int64_t> into) {
  Number largest = 0;
  for (size_t i = 0; i < into.size(); ++i) {
    const auto token = token_at<Number>(tokens, i);
    largest = std::max(largest, token);
    into[i] = token;
  }
  return largest;
}

template <typename Number>
uint32_t largest_of(const char* tokens, uint64_t count) {
  // Several at once, so that the compiler can use vectors without looking at the order.
  constexpr size_t kLanes = 32;
  Number lanes[kLanes] = {};
  uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = std::max(lanes[lane], token_at<Number>(tokens, i + lane));
  }
  Number largest = *std::max_element(std::begin(lanes), std::end(lanes));
  for (; i < count; ++i) largest = std::max(largest, token_at<Number>(tokens, i));
  return largest;
}

}  // namespace

TokenPart::TokenPart(const std::string& path, TokenFormat format)
    : path_(path), file_(std::in_place, path), mapped_(std::make_unique<MappedFile>(*file_)) {
  const std::string_view bytes = mapped_->bytes();
  layout_ = token_layout(
      {.path = path, .bytes = bytes.substr(0, kTokenHeaderBytes), .file_size = bytes.size()}, format);
  tokens_ = bytes.data() + layout_.first_byte;
}

TokenPart::TokenPart(std::string path, std::string bytes, int bytes_per_token)
    : path_(std::move(path)), held_(std::move(bytes)) {
  layout_ = {.bytes_per_token = bytes_per_token,
             .num_tokens = held_.size() / static_cast<size_t>(bytes_per_token)};
  tokens_ = held_.data();
}

void TokenPart::check_size() const {
  if (!file_) return;
  const uint64_t size = file_->version().size;
  if (size != mapped_->bytes().size())
    throw DataError(path_, "file size",
                    std::to_string(mapped_->bytes().size()) + " bytes as when it was opened",
                    std::to_string(size));
}

uint32_t TokenPart::copy(uint64_t first, std::span<int64_t> into) const {
  const char* begin = tokens_ + first * static_cast<uint64_t>(width());
  return width() == 2 ? widen<uint16_t>(begin, into) : widen<uint32_t>(begin, into);
}

void TokenPart::check_tokens(uint64_t first, uint64_t count, uint32_t vocab_size) const {
  const char* begin = tokens_ + first * static_cast<uint64_t>(width());
  const uint32_t largest =
      width() == 2 ? largest_of<uint16_t>(begin, count) : largest_of<uint32_t>(begin, count);
  if (largest < vocab_size) return;
  const auto token = [&](uint64_t i) {
    return width() == 2 ? uint32_t{token_at<uint16_t>(begin, i)} : token_at<uint32_t>(begin, i);
  };
  uint64_t i = 0;
  while (token(i) < vocab_size) ++i;
  throw DataError(path_, "token " + std::to_string(first + i) + ", counted from 0",
                  "below the size of the vocabulary, " + std::to_string(vocab_size),
                  std::to_string(token(i)));
}

}  // namespace lockstep
