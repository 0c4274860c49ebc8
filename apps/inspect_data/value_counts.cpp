#include "lockstep/apps/inspect_data/value_counts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace lockstep::apps {
namespace {

constexpr int kIndexBits = 14;
constexpr size_t kRegisters = size_t{1} << kIndexBits;

/// Steele, Lea and Flood's finalizer of SplitMix64.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = mixed(text.size());
  while (!text.empty()) {
    uint64_t part = 0;
    const size_t size = std::min(text.size(), sizeof part);
    std::memcpy(&part, text.data(), size);
    hash = mixed(hash ^ part);
    text.remove_prefix(size);
  }
  return hash;
}

}  // namespace

void ValueCounts::add(uint64_t number) {
  if (!is_exact()) return note(mixed(number));
  ++numbers_[number];
  if (numbers_.size() > kMostCounted) estimate();
}

void ValueCounts::add(std::string_view text) {
  if (!is_exact()) return note(hash_of(text));
  if (text.size() <= kLongestText) {
    ++texts_[std::string(text)];
  } else {
    ++long_texts_[hash_of(text)];
  }
  if (texts_.size() + long_texts_.size() > kMostCounted) estimate();
}

void ValueCounts::merge(const ValueCounts& other) {
  if (!other.is_exact()) {
    if (is_exact()) estimate();
    for (size_t i = 0; i < kRegisters; ++i) registers_[i] = std::max(registers_[i], other.registers_[i]);
    return;
  }
  if (is_exact()) {
    for (const auto& [number, count] : other.numbers_) numbers_[number] += count;
    for (const auto& [text, count] : other.texts_) texts_[text] += count;
    for (const auto& [hash, count] : other.long_texts_) long_texts_[hash] += count;
    if (numbers_.size() > kMostCounted || texts_.size() + long_texts_.size() > kMostCounted) estimate();
    return;
  }
  for (const auto& [number, count] : other.numbers_) note(mixed(number));
  for (const auto& [text, count] : other.texts_) note(hash_of(text));
  for (const auto& [hash, count] : other.long_texts_) note(hash);
}

void ValueCounts::note(uint64_t hash) {
  const size_t index = hash >> (64 - kIndexBits);
  // The first set bit after the index; a bit at the end makes sure that there is one.
  const uint64_t rest = (hash << kIndexBits) | (uint64_t{1} << (kIndexBits - 1));
  registers_[index] = std::max(registers_[index], static_cast<uint8_t>(std::countl_zero(rest) + 1));
}

/// Goes on with registers in place of counts.
void ValueCounts::estimate() {
  registers_.assign(kRegisters, 0);
  for (const auto& [number, count] : numbers_) note(mixed(number));
  for (const auto& [text, count] : texts_) note(hash_of(text));
  for (const auto& [hash, count] : long_texts_) note(hash);
  numbers_ = {};
  texts_ = {};
  long_texts_ = {};
}

int64_t ValueCounts::num_distinct() const {
  if (is_exact()) return static_cast<int64_t>(numbers_.size() + texts_.size() + long_texts_.size());
  constexpr auto kCount = static_cast<double>(kRegisters);
  double sum = 0;
  for (const uint8_t value : registers_) sum += std::ldexp(1.0, -value);
  const double raw = 0.7213 / (1 + 1.079 / kCount) * kCount * kCount / sum;
  const auto num_empty = static_cast<double>(std::count(registers_.begin(), registers_.end(), 0));
  const double estimated = raw <= 2.5 * kCount && num_empty > 0 ? kCount * std::log(kCount / num_empty) : raw;
  return std::llround(estimated);
}

}  // namespace lockstep::apps
