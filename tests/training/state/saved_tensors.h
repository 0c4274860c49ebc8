#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstddef>
#include <string>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {

/// Returns all tensors of the model and of the optimizers in a file that TrainingState saved, by their names.
inline NamedTensors saved_tensors(const std::string& path) {
  NamedTensors tensors;
  const StateValue state = load_state_file(path);
  for (const char* part : {"model", "optimizers"}) {
    visit_tensors(*state.get_if<StateValue::Dict>()->find(part),
                  [&](const std::string& name, const torch::Tensor& tensor) {
                    tensors.emplace_back(std::string(part) + " " + name, tensor);
                  });
  }
  return tensors;
}

/// Expects the same names in the same order, and values with a difference of at most `tolerance`, or equal
/// bits if it is 0. Too few tensors fail as well, so that a comparison of nothing does not pass.
inline void expect_tensors(const NamedTensors& actual, const NamedTensors& expected, double tolerance = 0) {
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_GT(expected.size(), 5U);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    ASSERT_EQ(actual[i].second.sizes(), expected[i].second.sizes()) << actual[i].first;
    if (tolerance == 0) {
      EXPECT_TRUE(torch::equal(actual[i].second, expected[i].second)) << actual[i].first;
    } else {
      EXPECT_TRUE(torch::allclose(actual[i].second, expected[i].second, 0, tolerance)) << actual[i].first;
    }
  }
}

/// Expects that of the tensors in two files.
inline void expect_saved_tensors(const std::string& path, const std::string& expected, double tolerance = 0) {
  expect_tensors(saved_tensors(path), saved_tensors(expected), tolerance);
}

}  // namespace lockstep
