#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <vector>

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

/// Returns `values`, or the first `few` of them under a sanitizer.
template <typename T>
std::vector<T> few_if_sanitized(std::vector<T> values, size_t few) {
  const size_t count = few_if_sanitized(values.size(), few);
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(count), values.end());
  return values;
}

/// Returns all pairs of the values. Under a sanitizer, each value is in a pair, and the values of the shorter
/// list take turns.
template <typename A, typename B>
std::vector<std::tuple<A, B>> pairs_to_test(const std::vector<A>& first, const std::vector<B>& second) {
  std::vector<std::tuple<A, B>> pairs;
  if (kHasSanitizer) {
    for (size_t i = 0; i < std::max(first.size(), second.size()); ++i)
      pairs.emplace_back(first[i % first.size()], second[i % second.size()]);
    return pairs;
  }
  for (const auto& a : first) {
    for (const auto& b : second) pairs.emplace_back(a, b);
  }
  return pairs;
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
