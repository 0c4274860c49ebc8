#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace lockstep {

/// Hashes bytes for tables in memory. Multiplies as Fibonacci hashing does, and adds both halves of the
/// product without carry, so that every bit of the bytes reaches the low bits. Values differ between machines
/// of different byte orders.
inline uint64_t hash_of_bytes(std::string_view bytes) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio
  const auto mix = [](uint64_t hash, uint64_t word) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(hash ^ word) * kOdd;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t hash = bytes.size();
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    hash = mix(hash, word);
  }
  uint64_t word = 0;
  std::memcpy(&word, at, left);
  return mix(hash, word);
}

}  // namespace lockstep
