#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/replica_group.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_threads.h"

namespace lockstep {

/// Tests of collectives among the replicas of one process, and among those of several workers. The parameter
/// is the number of replicas of each worker.
class CollectiveWorlds : public testing::TestWithParam<std::vector<int>> {
 protected:
  static int num_ranks() {
    int total = 0;
    for (const int count : GetParam()) total += count;
    return total;
  }
  static bool is_one_process() { return GetParam().size() == 1; }
  /// Whether sums are made in an order that depends on the ranks alone.
  static bool has_fixed_order() {
    return is_one_process() || tested_transport() == WorkerTransport::kExchange;
  }

  using Function = std::function<void(int rank, const BackendPointer& backend)>;

  /// Runs `function` on every rank.
  static void run(const Function& function) {
    for (const auto& error : errors_of(function)) EXPECT_EQ(message_of<std::exception>(error), "no error");
  }

  /// Returns the errors of the replicas, or one for each worker if there are several.
  static std::vector<std::exception_ptr> errors_of(const Function& function) {
    if (is_one_process()) {
      ReplicaGroup group(num_ranks());
      return group.errors_of([&](int rank) { function(rank, group.backend(rank)); });
    }
    return run_workers(GetParam(), [&](WorkerGroup& group) {
      WorkerReplicas replicas(group);
      replicas.run(
          [&](int rank, c10d::Backend& backend) { function(rank, BackendPointer::reclaim_copy(&backend)); });
    });
  }
};

inline auto collective_worlds() {
  return testing::Values(std::vector{1}, std::vector{2}, std::vector{3}, std::vector{4}, std::vector{1, 1},
                         std::vector{2, 2}, std::vector{1, 3}, std::vector{1, 1, 1, 1, 1});
}

/// Returns how many of the errors are an `Error` with this text in its message.
template <typename Error>
int count_errors(const std::vector<std::exception_ptr>& errors, const std::string& text) {
  int count = 0;
  for (const auto& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const Error& caught) {
      if (std::string(caught.what()).find(text) != std::string::npos) ++count;
    } catch (const std::exception&) {
      continue;  // another type
    }
  }
  return count;
}

/// Checks the gradients of `loss_of`, a rank's loss as a function of its own input, by central differences of
/// the sum of all ranks' losses. All ranks call it together. Losses must be in float64.
inline void expect_gradients_of_differences(const BackendPointer& backend, const at::Tensor& input,
                                            const std::function<at::Tensor(const at::Tensor&)>& loss_of) {
  const at::Tensor variable = input.detach().clone().requires_grad_();
  loss_of(variable).backward();
  const at::Tensor gradient = variable.grad().reshape({-1});
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  // Ranks may have different numbers of elements.
  const at::Tensor rows = gather_rows(backend, at::full({1}, input.numel(), at::kLong));
  for (int rank = 0; rank < backend->getSize(); ++rank) {
    const int64_t elements = few_if_sanitized(rows[rank].item<int64_t>(), 2);
    for (int64_t i = 0; i < elements; ++i) {
      double losses[2];
      for (const int side : {0, 1}) {
        const at::Tensor moved = input.detach().clone();
        if (rank == backend->getRank()) moved.view({-1})[i] += side == 0 ? -kStep : kStep;
        losses[side] = all_reduce(backend, ReduceOp::kSum, {loss_of(moved)})[0].item<double>();
      }
      if (rank == backend->getRank()) {
        EXPECT_NEAR(gradient[i].item<double>(), (losses[1] - losses[0]) / (2 * kStep),
                    1e-8 * std::max(100.0, std::abs(losses[1])))
            << "element " << i;
      }
    }
  }
}

}  // namespace lockstep
