#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

/// Cuts a torch::nn::Linear by its output features, as ColumnParallelLinear does, or the features of a
/// torch::nn::Embedding.
struct ColwiseParallel {
  /// Returns the whole output on all ranks, instead of this rank's features. Each rank then has the whole
  /// bias.
  bool gather_output = false;
  /// Numbers of consecutive output features, each of which is cut by itself, such as those of queries, keys
  /// and values; see ColumnParallelLinearOptions. Empty: all are cut together. Not with gather_output.
  std::vector<int64_t> sections = {};
};

/// Cuts a torch::nn::Linear by its input features, as RowParallelLinear does, or the rows of a
/// torch::nn::Embedding, as VocabParallelEmbedding does. The output is whole.
struct RowwiseParallel {
  /// Whether a linear layer's input is this rank's part of the features, as a layer with ColwiseParallel
  /// returns it. If not, it is the whole, and the same on all ranks.
  bool input_is_parallel = true;
};

using ParallelStyle = std::variant<ColwiseParallel, RowwiseParallel>;

struct ParallelPlanLine {
  /// Dotted name of a module within the one that is parallelized, such as "blocks.0.up". A `*` matches any
  /// characters but dots: "blocks.*.up" names the module of every block.
  std::string modules;
  ParallelStyle style;
};

/// Says which modules parallelize() cuts, and how. A module takes the first line that names it.
///
/// Example:
///
///     const ParallelPlan plan{{"embedding", RowwiseParallel{}},
///                             {"blocks.*.up", ColwiseParallel{}},
///                             {"blocks.*.down", RowwiseParallel{}}};
using ParallelPlan = std::vector<ParallelPlanLine>;

}  // namespace lockstep
