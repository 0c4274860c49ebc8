#pragma once

#include <cstdint>

namespace lockstep {

/// SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014): the same numbers
/// on every machine.
class TextRandom {
 public:
  /// The numbers of one of the sequences that a seed stands for. Neighbouring seeds and indices have nothing
  /// in common.
  TextRandom(uint64_t seed, uint64_t index) : state_(mixed(mixed(seed) + index)) {}

  uint64_t operator()() {
    state_ += kStep;
    return mixed(state_);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15ULL;

  static uint64_t mixed(uint64_t z) {
    z += kStep;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace lockstep
