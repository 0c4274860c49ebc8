#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lockstep/tests/equivalence/sharded_parity.h"

namespace lockstep {

/// A layer of a random net, and how units and recomputation divide it. The values do not depend on these.
struct LayerPlan {
  enum class Kind {
    kLinear,     ///< tanh of a linear layer, added to its input if it has that width
    kLayerNorm,  ///< over the width
    kBatchNorm,  ///< over all replicas' examples
    kAgain,      ///< the module of an earlier layer in the block, under a second name
    kBlock,      ///< layers one after another
    kSequence,   ///< the same; as units, a ShardedSequential
  };

  Kind kind = Kind::kLinear;
  int64_t inputs = 1;
  int64_t outputs = 1;
  size_t again = 0;  ///< kAgain: place of that layer in the block
  bool is_frozen = false;
  bool is_unit = false;
  bool keeps_until_backward = false;  ///< of units
  bool is_recomputed = false;
  bool is_used_twice = false;  ///< one use after another
  int64_t min_unit_bytes = 0;  ///< kSequence
  std::vector<LayerPlan> layers{};

  bool has_layers() const { return kind == Kind::kBlock || kind == Kind::kSequence; }
};

/// Returns whether `test` holds for the layer or one in it.
bool any_layer(const LayerPlan& plan, const std::function<bool(const LayerPlan&)>& test);

/// Returns the layers as lines of text, indented.
std::string str(const LayerPlan& plan, int indent = 0);

struct RandomNetOptions {
  int depth = 3;                ///< blocks in blocks
  bool has_batch_norms = true;  ///< needs two examples in each micro-batch
};

/// Draws a net. Its last layer is linear and trainable.
LayerPlan random_net(std::mt19937& random, const RandomNetOptions& options);

/// Calls `use` with nets that have one part less, or a simpler one, of the same inputs and outputs.
void for_each_simpler(const LayerPlan& plan, const std::function<void(const LayerPlan&)>& use);

/// Returns the net with one width everywhere, so that more layers can be left out.
LayerPlan with_width(LayerPlan plan, int64_t width);

/// Makes the net. Its losses are squares of differences to targets.
ParityNet make_random_net(const LayerPlan& plan, NetPlace& place);

}  // namespace lockstep
