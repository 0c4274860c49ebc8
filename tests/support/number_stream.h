#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tests/support/numbered_dataset.h"

namespace lockstep {

/// Numbers from `first` on, each `step` more than the one before it.
inline Numbers numbers_from(int64_t first, int64_t count, int64_t step = 1) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(first + i * step);
  return numbers;
}

/// Examples with these numbers, like those of numbered_dataset().
inline Example numbered_examples(const Numbers& numbers) {
  const auto targets = torch::tensor(numbers, torch::kLong);
  return {targets.to(torch::kDouble).unsqueeze(1), targets};
}

/// Gives numbers one after another. Fails the test if asked for more after its end.
class NumberStream {
 public:
  explicit NumberStream(Numbers numbers) : numbers_(std::move(numbers)) {}

  std::optional<Example> get_batch(size_t count) {
    EXPECT_FALSE(std::exchange(has_ended_, next_ == numbers_.size())) << "asked again after the end";
    if (has_ended_) return std::nullopt;
    const auto begin = numbers_.begin() + static_cast<std::ptrdiff_t>(next_);
    next_ = std::min(numbers_.size(), next_ + count);
    return numbered_examples({begin, numbers_.begin() + static_cast<std::ptrdiff_t>(next_)});
  }

 private:
  Numbers numbers_;
  size_t next_ = 0;
  bool has_ended_ = false;
};

/// The numbers in a file of this name: "100+3" has 100, 101 and 102.
inline Numbers numbers_in_file(const std::string& name) {
  return numbers_from(std::stoll(name), std::stoll(name.substr(name.find('+') + 1)));
}

inline Numbers numbers_in_files(const std::vector<std::string>& names) {
  Numbers numbers;
  for (const auto& name : names) {
    const auto more = numbers_in_file(name);
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  return numbers;
}

/// Each replica's examples in each global batch if these numbers are one stream: pieces of ceil(n / replicas)
/// of each batch of n.
inline std::vector<std::vector<Numbers>> cut_stream(const Numbers& numbers, size_t batch_size,
                                                    size_t num_replicas) {
  std::vector<std::vector<Numbers>> steps;
  for (size_t at = 0; at < numbers.size(); at += batch_size) {
    const size_t count = std::min(batch_size, numbers.size() - at);
    const size_t piece = (count + num_replicas - 1) / num_replicas;
    std::vector<Numbers> shards(num_replicas);
    for (size_t i = 0; i < count; ++i) shards[i / piece].push_back(numbers[at + i]);
    steps.push_back(std::move(shards));
  }
  return steps;
}

}  // namespace lockstep
