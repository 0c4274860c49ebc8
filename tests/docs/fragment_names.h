// The names that the fragments of C++ in docs/ assume. They are compiled as members of these structs, and
// never run.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace fragments {

using namespace lockstep;  // as the programs that the pages show

struct MyBackend : c10d::Backend {
  MyBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout);
};

struct Records {
  Records(const std::vector<std::string>& files, int64_t shuffle_seed);
  std::optional<Example> get_batch(size_t size);
};

struct Parts {
  Example read(int64_t part);
};

/// A training program, between runs.
struct Program {
  static torch::Tensor train_step(ReplicaContext& replica, SimpleCnn& net, FusedAdam& adam,
                                  const Example& shard);
  static Parts open_batches(const InputContext& context);
  static double evaluate(const Example& part);

  Strategy& strategy;
  Mirrored<SimpleCnn>& model;
  Mirrored<FusedAdam>& optimizer;
  Mirrored<GradScaler>& scaler;
  Mirrored<CategoricalAccuracy>& accuracy;
  DistributedDataset<Example>& batches;
  PerReplica<Example>& batch;
  Trainer<SimpleCnn>& trainer;
  std::vector<std::string> files;
};

/// A training step.
struct Step {
  static torch::Tensor loss_of(const Example& examples);

  ReplicaContext& replica;
  SimpleCnn& model;
  FusedAdam& optimizer;
  Example& first_half;
  Example& second_half;
};

}  // namespace fragments
