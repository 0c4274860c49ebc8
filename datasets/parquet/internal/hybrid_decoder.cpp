#include "lockstep/datasets/parquet/internal/hybrid_decoder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace lockstep {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kWidths = 33;

/// Returns number `j` of a group of eight.
template <unsigned kWidth>
uint32_t number_of(const uint8_t* group, unsigned j) {
  uint64_t bits = 0;
  std::memcpy(&bits, group + j * kWidth / 8, sizeof bits);
  return static_cast<uint32_t>((bits >> (j * kWidth % 8)) & ((uint64_t{1} << kWidth) - 1));
}

template <unsigned kWidth>
void unpack(const uint8_t* from, uint32_t* to, size_t groups) {
  for (size_t i = 0; i < groups; ++i, from += kWidth, to += 8)
    for (unsigned j = 0; j < 8; ++j) to[j] = number_of<kWidth>(from, j);
}

using Unpack = void (*)(const uint8_t*, uint32_t*, size_t);

template <size_t... kWidth>
constexpr std::array<Unpack, kWidths> unpack_functions(std::index_sequence<kWidth...>) {
  return {&unpack<kWidth>...};
}

/// Puts the lowest `count` bits of `bits`, 1 to 64, at bit `place` of `to`, where all bits are still 0.
void put_bits(uint64_t* to, size_t place, uint64_t bits, size_t count) {
  constexpr size_t kBits = 64;
  bits &= ~uint64_t{0} >> (kBits - count);
  to[place / kBits] |= bits << (place % kBits);
  if (place % kBits + count > kBits) to[place / kBits + 1] |= bits >> (kBits - place % kBits);
}

constexpr auto kUnpack = unpack_functions(std::make_index_sequence<kWidths>());

}  // namespace

HybridDecoder::HybridDecoder(const uint8_t* data, size_t size, int width)
    : data_(data), end_(data + size), width_(width) {}

/// Returns false at the end of the data, and if it is damaged.
bool HybridDecoder::next_run() {
  uint64_t header = 0;
  for (int shift = 0;; shift += 7) {
    if (data_ == end_ || shift > 28) return false;
    header |= static_cast<uint64_t>(*data_ & 0x7f) << shift;
    if (*data_++ < 0x80) break;
  }
  const auto rest = static_cast<size_t>(end_ - data_);
  is_packed_ = header & 1;
  if (!is_packed_) {
    const size_t bytes = static_cast<size_t>(width_ + 7) / 8;
    if (rest < bytes) return false;
    // Runs are short if a column has nulls here and there, so that a call of memcpy() would take longest.
    repeated_ = 0;
    for (size_t byte = 0; byte < bytes; ++byte) repeated_ |= uint32_t{data_[byte]} << (8 * byte);
    if (width_ < 32 && repeated_ >> width_ != 0) return false;
    data_ += bytes;
    left_ = header >> 1;
    return true;
  }
  const size_t groups = header >> 1;
  const size_t bytes = groups * static_cast<size_t>(width_);
  // Some writers leave out the end of the last group.
  left_ = bytes <= rest ? groups * 8 : rest * 8 / static_cast<size_t>(width_);
  group_ = data_;
  in_group_ = 0;
  data_ += std::min(bytes, rest);
  return true;
}

void HybridDecoder::read_packed(uint32_t* to, size_t count) {
  const auto width = static_cast<size_t>(width_);
  const Unpack unpack = kUnpack[width];
  std::array<uint32_t, 8> numbers{};
  const auto read_some = [&](size_t some) {
    unpack(group_, numbers.data(), 1);
    to = std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(in_group_), some, to);
    count -= some;
    in_group_ += some;
    if (in_group_ < 8) return;
    group_ += width;
    in_group_ = 0;
  };
  if (in_group_ > 0) read_some(std::min(count, 8 - in_group_));
  const size_t groups = count / 8;
  unpack(group_, to, groups);
  to += groups * 8;
  group_ += groups * width;
  count -= groups * 8;
  if (count > 0) read_some(count);
}

size_t HybridDecoder::read_bits(uint64_t* to, size_t count) {
  std::fill_n(to, (count + 63) / 64, uint64_t{0});
  size_t done = 0;
  while (done < count) {
    if (left_ == 0) {
      if (!next_run()) break;
      continue;
    }
    const size_t end = done + std::min(left_, count - done);
    left_ -= end - done;
    while (is_packed_ && done < end) {
      uint64_t bits = 0;  // up to seven of them were read before
      std::memcpy(&bits, group_, sizeof bits);
      const size_t some = std::min(end - done, size_t{57});
      put_bits(to, done, bits >> in_group_, some);
      group_ += (in_group_ + some) / 8;
      in_group_ = (in_group_ + some) % 8;
      done += some;
    }
    while (repeated_ != 0 && done < end) {
      const size_t some = std::min(end - done, size_t{64});
      put_bits(to, done, ~uint64_t{0}, some);
      done += some;
    }
    done = end;
  }
  return done;
}

size_t HybridDecoder::read(uint32_t* to, size_t count) {
  size_t done = 0;
  while (done < count) {
    if (left_ == 0) {
      if (!next_run()) break;
      continue;
    }
    const size_t some = std::min(left_, count - done);
    if (is_packed_) {
      read_packed(to + done, some);
    } else {
      std::fill_n(to + done, some, repeated_);
    }
    left_ -= some;
    done += some;
  }
  return done;
}

}  // namespace lockstep
