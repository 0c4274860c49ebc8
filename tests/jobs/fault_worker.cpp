// A worker of cluster_mistakes_test.py: makes the mistake or has the failure that its mode names, and ends as
// Lockstep's programs do. Worker 1 is the one that differs.
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <exception>
#include <iostream>
#include <string>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/datasets/images/image_folder.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"

namespace lockstep {
namespace {

using torch::nn::Linear;
using torch::nn::Sequential;

void sum(Strategy& strategy) {
  strategy.run([](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones({2})); });
}

void log(const std::string& text) {
  std::cout << text << std::endl;
}

/// Reads the images of a folder again and again, without keeping any. Worker 1 gets the second half of each
/// batch.
void read_images(Strategy& strategy, const std::string& folder) {
  auto batches =
      strategy.distribute_dataset(ImageFolder(folder, {.cache_bytes = 0}), {.global_batch_size = 4});
  for (int64_t epoch = 0;; ++epoch) {
    for ([[maybe_unused]] const auto& batch : batches) sum(strategy);
    if (epoch == 0) log("an epoch has ended");
  }
}

void call_less(Strategy& strategy, bool is_other) {
  sum(strategy);
  if (!is_other) sum(strategy);
}

void call_another(Strategy& strategy, bool is_other, const std::string& operation) {
  strategy.run([&](ReplicaContext& replica) {
    const auto value = torch::ones({2});
    if (!is_other) {
      replica.all_reduce(ReduceOp::kSum, value);
    } else if (operation == "mean") {
      replica.all_reduce(ReduceOp::kMean, value);
    } else if (operation == "shape") {
      replica.all_reduce(ReduceOp::kSum, torch::ones({3}));
    } else if (operation == "broadcast") {
      replica.broadcast_(value);
    } else {
      throw apps::UsageError("expected mean, shape or broadcast, but got '" + operation + "'");
    }
  });
}

/// Two layers, of equal shapes unless `difference` asks for others.
Sequential make_model(bool is_other, const std::string& difference) {
  if (!is_other) return Sequential({{"in", Linear(3, 3)}, {"out", Linear(3, 3)}});
  if (difference == "shape") return Sequential({{"in", Linear(3, 3)}, {"out", Linear(3, 4)}});
  if (difference == "order") return Sequential({{"out", Linear(3, 3)}, {"in", Linear(3, 3)}});
  if (difference == "name") return Sequential({{"in", Linear(3, 3)}, {"last", Linear(3, 3)}});
  if (difference == "number") return Sequential({{"in", Linear(3, 3)}});
  if (difference != "dtype")
    throw apps::UsageError("expected dtype, shape, order, name or number, but got '" + difference + "'");
  auto model = make_model(false, "");
  model->to(torch::kDouble);
  return model;
}

void make_optimizer(Strategy& strategy, double momentum) {
  auto model = strategy.scope([](ReplicaContext&) { return make_model(false, ""); });
  strategy.scope([&](ReplicaContext& replica) {
    return torch::optim::SGD(model[replica]->parameters(), torch::optim::SGDOptions(0.1).momentum(momentum));
  });
}

void run_mode(MultiWorkerMirroredStrategy& strategy, const std::string& mode, const std::string& argument) {
  const bool is_other = strategy.cluster_resolver()->rank() == 1;
  if (mode == "data") {
    read_images(strategy, argument);
  } else if (mode == "fewer") {
    call_less(strategy, is_other);
  } else if (mode == "operation") {
    call_another(strategy, is_other, argument);
  } else if (mode == "model") {
    strategy.scope([&](ReplicaContext&) { return make_model(is_other, argument); });
  } else if (mode == "momentum") {
    make_optimizer(strategy, is_other ? std::stod(argument) : 0.9);
  } else {
    throw apps::UsageError("expected data, fewer, operation, model or momentum, but got '" + mode + "'");
  }
  log("made no difference");
}

int work(const std::string& mode, const std::string& argument) {
  log("is here");
  MultiWorkerMirroredStrategy strategy(nullptr, {"cpu:0"}, {.intra_op_threads = 1});
  log("has met the others");
  try {
    run_mode(strategy, mode, argument);
    return 0;
  } catch (...) {
    throw apps::describe_failure(std::current_exception(), strategy.cluster_resolver());
  }
}

int end_by(const apps::Failure& failure) {
  std::cerr << "fault_worker: error: " << failure.message << std::endl;
  return failure.exit_code;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using lockstep::apps::describe_failure;
  if (argc < 2 || argc > 3) {
    std::cerr << "expected: fault_worker MODE [ARGUMENT]\n";
    return 2;
  }
  try {
    return lockstep::work(argv[1], argc == 3 ? argv[2] : "");
  } catch (const lockstep::apps::Failure& failure) {
    return lockstep::end_by(failure);
  } catch (...) {
    return lockstep::end_by(describe_failure(std::current_exception()));
  }
}
