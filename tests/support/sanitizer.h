#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_TEST_HAS_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKSTEP_TEST_HAS_SANITIZER true
#endif
#endif
#ifndef LOCKSTEP_TEST_HAS_SANITIZER
#define LOCKSTEP_TEST_HAS_SANITIZER false
#endif

namespace lockstep {

/// Whether a sanitizer instruments this build, so that tests take many times as long.
inline constexpr bool kHasSanitizer = LOCKSTEP_TEST_HAS_SANITIZER;

/// Returns `number`, or at most `few` under a sanitizer: for repetitions that compute other numbers by the
/// same code, so that races and wrong accesses show in the first ones.
template <typename Number>
constexpr Number few_if_sanitized(Number number, std::type_identity_t<Number> few) {
  return kHasSanitizer ? std::min(number, few) : number;
}

/// Whether a test of all pairs of `count` things takes this pair: under a sanitizer, each thing is only once
/// the first, and once the second.
constexpr bool takes_pair(size_t first, size_t second, size_t count) {
  return !kHasSanitizer || second == (first + 1) % count;
}

/// Returns the number of steps of a training that a test compares with its oracle. Gradients are summed in
/// their final buckets from the second step on.
constexpr int compared_steps(int steps) {
  return few_if_sanitized(steps, 3);
}

}  // namespace lockstep
