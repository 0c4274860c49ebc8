#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/tests/equivalence/random_net.h"
#include "lockstep/tests/equivalence/sharded_parity.h"

namespace lockstep {

/// A random net, and how it is trained.
struct RandomTraining {
  LayerPlan net;
  ParityLayout layout;
  std::vector<std::string> optimizers;
  int64_t num_examples = 1;
  int64_t batch_size = 1;
  int micro_batches = 1;
  int steps = 1;
  std::optional<double> clip_norm{};
  int freezing_step = -1;  ///< before which some parameters are frozen, and frozen ones trained; -1: none
  int64_t bucket_bytes = 256;

  std::string str() const;
  /// Returns the sizes of the batches, and of what all replicas have of them in each micro-batch.
  std::vector<int64_t> sizes_of_batches() const;
  std::vector<int64_t> sizes_of_micro_batches() const;
  /// Returns how the training differs from that on one device; empty if it does not.
  std::string problem() const;
};

/// Returns the training of a seed.
RandomTraining random_training(unsigned seed);

/// Returns a simpler training that fails, too: one of which no part can be left out. `fails` is called at
/// most `most_calls` times.
RandomTraining shrunk(RandomTraining training, const std::function<bool(const RandomTraining&)>& fails,
                      int most_calls = 300);

}  // namespace lockstep
