#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/gradients/gradient_reducer.h"
#include "lockstep/runtime/gradients/pending_gradient.h"
#include "lockstep/tests/support/replica_group.h"

namespace lockstep {

inline constexpr BucketOptions kOneParameterABucket{.first_bucket_bytes = 1, .bucket_bytes = 1};
inline constexpr BucketOptions kOneBucket{};
inline constexpr double kUnused = std::numeric_limits<double>::quiet_NaN();

/// Equal parameters and a reducer on each of several replicas.
class Reducers {
 public:
  Reducers(int ranks, const std::function<std::vector<at::Tensor>()>& make_parameters,
           const BucketOptions& buckets, const std::vector<size_t>& sparse = {})
      : group_(ranks),
        parameters_(static_cast<size_t>(ranks)),
        holds_(static_cast<size_t>(ranks)),
        reducers_(static_cast<size_t>(ranks)) {
    for (auto& parameters : parameters_) parameters = make_parameters();
    group_.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      reducers_[self] = std::make_unique<GradientReducer>(
          parameters_[self], group_.backend(rank),
          GradientReducer::Options{buckets, [this, self] { return holds_[self] != 0; },
                                   [](size_t index) { return "'parameter_" + std::to_string(index) + "'"; },
                                   sparse});
    });
  }

  /// Runs `function` as a strategy does: prepare() first, and reset() after a failure.
  std::vector<std::exception_ptr> errors_of(const std::function<void(int)>& function) {
    auto errors = group_.errors_of([&](int rank) {
      reducer(rank).prepare();
      function(rank);
    });
    if (std::any_of(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; })) {
      for (int rank = 0; rank < ranks(); ++rank) reducer(rank).reset();
    }
    return errors;
  }
  void run(const std::function<void(int)>& function) {
    for (const auto& error : errors_of(function)) EXPECT_EQ(message_of<std::exception>(error), "no error");
  }

  static std::exception_ptr as_the_strategies_tell_it(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& caught) {
      try {
        rethrow_pending(caught.what_without_backtrace());
      } catch (...) {
        return std::current_exception();
      }
    } catch (...) {  // as it is
    }
    return error;
  }
  /// The first error that is not a consequence of another replica's.
  std::string cause_of(const std::function<void(int)>& function) {
    for (const auto& error : errors_of(function)) {
      if (message_of<CollectiveAborted>(error) == "another replica failed") continue;
      if (error) return message_of<InvalidArgument>(as_the_strategies_tell_it(error));
    }
    return "no error";
  }

  int ranks() const { return group_.size(); }
  std::vector<at::Tensor>& parameters(int rank) { return parameters_[static_cast<size_t>(rank)]; }
  GradientReducer& reducer(int rank) { return *reducers_[static_cast<size_t>(rank)]; }
  void hold(int rank, bool held) { holds_[static_cast<size_t>(rank)] = held ? 1 : 0; }
  void zero(int rank) {
    for (auto& parameter : parameters(rank)) parameter.mutable_grad().reset();
  }
  at::Tensor gradient(int rank, size_t index) { return parameters(rank)[index].grad(); }
  /// Gives each parameter a gradient of one value; kUnused leaves it out.
  void backward(int rank, const std::vector<double>& values) {
    at::Tensor loss = torch::zeros({});
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isnan(values[i])) loss = loss + (parameters(rank)[i] * values[i]).sum();
    }
    loss.backward();
  }
  /// Expects this value on every replica, bit for bit.
  void expect_gradients(const std::vector<double>& values) {
    for (int rank = 0; rank < ranks(); ++rank) {
      for (size_t i = 0; i < values.size(); ++i) {
        SCOPED_TRACE("replica " + std::to_string(rank) + ", parameter " + std::to_string(i));
        if (std::isnan(values[i])) {
          EXPECT_FALSE(gradient(rank, i).defined());
        } else {
          ASSERT_TRUE(gradient(rank, i).defined());
          EXPECT_TRUE(gradient(rank, i).eq(values[i]).all().item<bool>()) << gradient(rank, i);
        }
      }
    }
  }

 private:
  ReplicaGroup group_;
  std::vector<std::vector<at::Tensor>> parameters_;
  std::vector<char> holds_;  // only its own replica's thread uses an entry
  std::vector<std::unique_ptr<GradientReducer>> reducers_;
};

inline std::vector<at::Tensor> three_parameters() {
  return {torch::ones({2}).requires_grad_(), torch::ones({3, 2}).requires_grad_(),
          torch::ones({}).requires_grad_()};
}

}  // namespace lockstep
